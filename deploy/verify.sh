#!/usr/bin/env bash
# Tries what needs a container engine or a cluster; CI of a machine without these runs deploy/tests instead. On Ubuntu 23.10 and newer,
# load the profile of the sandbox first: `sudo apparmor_parser --replace deploy/apparmor/ralph-bot-bwrap`.
#
#   deploy/verify.sh docker   builds the images, asks whether the sandbox holds, and has compose.yaml carry out a trial on its Gitea, with
#                             one container and with one a role, and a backup and its restore (Docker 25, compose 2.24)
#   deploy/verify.sh kind     installs the chart on a new cluster in Docker (kind 0.27, kubectl 1.31, helm 3.17 or 4): one pod with SQLite, then
#                             control pods and runners on PostgreSQL, also with KEDA
#   deploy/verify.sh seccomp  compares the reviewed seccomp profile with Docker's newest
set -euo pipefail
cd "$(dirname "$0")/.."

need() { for tool in "$@"; do command -v "$tool" >/dev/null || { echo "deploy/verify.sh: $tool is not installed" >&2; exit 2; }; done; }
step() { printf '\n--- %s\n' "$*"; }
fail() { echo "FAILED: $*" >&2; exit 1; }
scratch=$(mktemp -d)
chmod 755 "$scratch"
# Configuration with an agent that changes nothing and a forge that does not answer.
idle='forges: [{ name: work, kind: gitea, url: "http://127.0.0.1:9", token_env: TOKEN, updates: poll }]
repositories: ["work:team/app"]
backends: { mine: { type: script, command: [sh, -c, "true"] } }'

compose() { docker compose --project-name ralph-verify --file "$scratch/deploy/docker/compose.yaml" "$@"; }

docker_engine() {
  need docker openssl
  docker info >/dev/null || { echo "deploy/verify.sh: no Docker engine answers" >&2; exit 2; }
  trap 'docker rm -f ralph-verify >/dev/null 2>&1 || true; docker volume rm -f ralph-verify >/dev/null 2>&1 || true
    [ ! -e "$scratch/deploy" ] || compose --profile runner down --volumes >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT
  step "build"
  docker build -f deploy/docker/Dockerfile -t ralph-bot .
  docker build -f deploy/docker/Dockerfile --target agents -t ralph-bot:agents .
  step "not root"
  test "$(docker run --rm --entrypoint id ralph-bot -u)" = 1000
  echo "$idle" >"$scratch/ralph-control.yaml"
  # shellcheck disable=SC2054
  settings=(--read-only --tmpfs /tmp:mode=1777,exec --tmpfs /home/ralph-bot:uid=1000,gid=1000,mode=0700 --cap-drop ALL
    --volume "$scratch/ralph-control.yaml:/etc/ralph-bot/ralph-control.yaml:ro" --env TOKEN=token)
  allowed=(--security-opt seccomp=deploy/docker/seccomp.json --security-opt "apparmor=${RALPH_APPARMOR:-unconfined}"
    --security-opt systempaths=unconfined --security-opt no-new-privileges:true)
  step "the sandbox holds with the profile"
  docker run --rm "${settings[@]}" "${allowed[@]}" ralph-bot check | tee "$scratch/check" || true
  grep -q '^ok .*sandbox: bubblewrap .*tier A' "$scratch/check"
  if grep -q '^FAIL sandbox' "$scratch/check"; then fail "the sandbox does not hold"; fi
  step "the demo in the container"
  docker run --rm "${settings[@]}" "${allowed[@]}" ralph-bot demo --exit --fast
  step "without the settings, the entrypoint says what to do"
  docker volume create ralph-verify >/dev/null
  docker run -d --name ralph-verify "${settings[@]}" --volume ralph-verify:/data ralph-bot >/dev/null
  for _ in $(seq 90); do
    [ "$(docker inspect --format '{{.State.Health.Status}}' ralph-verify)" = healthy ] && break
    sleep 1
  done
  docker logs ralph-verify 2>&1 | tee "$scratch/log"
  test "$(docker inspect --format '{{.State.Health.Status}}' ralph-verify)" = healthy
  grep -qE 'security-opt|tier B|landlock' "$scratch/log"
  step "stops in order"
  docker stop --time 90 ralph-verify
  test "$(docker inspect --format '{{.State.ExitCode}}' ralph-verify)" = 0
  compose_file
}

# Uses the first steps of deploy/README.md with files of its own, so that those of an operator stay as they are.
compose_file() {
  step "compose.yaml: Gitea"
  mkdir -p "$scratch/deploy/docker"
  cp deploy/docker/{compose.yaml,seccomp.json} "$scratch/deploy/docker/"
  sed 's/^backends:.*/backends: { mine: { type: script, command: [sh, -c, "true"] } }/; /^  claude:/d' \
    deploy/docker/ralph-control.example.yaml >"$scratch/deploy/docker/ralph-control.yaml"
  compose config --quiet
  compose up --detach --wait gitea
  compose exec -T -u git gitea gitea admin user create --admin --username ralph-bot --random-password \
    --email ralph-bot@localhost.localdomain --must-change-password=false >/dev/null
  token=$(compose exec -T -u git gitea gitea admin user generate-access-token --username ralph-bot \
    --scopes write:repository,write:issue,write:user,read:organization --raw)
  printf 'RALPH_GITEA_TOKEN=%s\nRALPH_GITEA_SECRET=%s\n' "$token" "$(openssl rand -hex 32)" >"$scratch/deploy/docker/ralph-bot.env"
  step "compose.yaml: a trial, started by a webhook of Gitea"
  compose run --rm --no-TTY --use-aliases ralph-bot init --try new | tee "$scratch/trial"
  grep -q 'Everything but the model is known to work' "$scratch/trial"
  step "compose.yaml: one container"
  compose up --detach --no-build --wait
  compose exec -T ralph-bot ralph-bot check | tee "$scratch/check" || true
  grep -q '^ok .*sandbox: bubblewrap .*tier A' "$scratch/check"
  step "compose.yaml: a backup and its restore"
  compose exec -T ralph-bot ralph-bot backup /data/backup.db
  compose cp ralph-bot:/data/backup.db "$scratch/backup.db"
  chmod 644 "$scratch/backup.db"
  compose stop ralph-bot
  compose run --rm --no-TTY --no-deps --entrypoint sh ralph-bot -c 'mkdir -m 0700 /data/damaged && mv /data/ralph.db* /data/damaged/'
  compose run --rm --no-TTY --no-deps --volume "$scratch/backup.db:/backup.db:ro" --entrypoint install ralph-bot \
    -m 0600 /backup.db /data/ralph.db
  compose up --detach --no-build --wait
  compose exec -T ralph-bot ralph-bot loops
  step "compose.yaml: the roles in containers of their own"
  printf 'COMPOSE_PROFILES=runner\nRALPH_ROLE=ingest\n' >"$scratch/deploy/docker/.env"
  compose up --detach --no-build --wait
  test "$(compose ps --services --status running | sort | xargs)" = "control gitea ralph-bot runner"
  compose exec -T runner sh -c 'command -v claude codex gemini opencode'
  compose logs --no-color runner | tee "$scratch/log"
  if grep -q 'the sandbox does not hold' "$scratch/log"; then fail "the sandbox does not hold in the runner"; fi
}

kind_cluster() {
  need docker kind kubectl helm
  trap 'kind delete cluster --name ralph-verify >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT
  step "chart"
  helm lint --strict deploy/helm/ralph-bot --set-json 'config={"forges":[{"name":"g"}],"backends":{"b":{}}}'
  helm template ralph-bot deploy/helm/ralph-bot --set-json 'config={"forges":[{"name":"g"}],"backends":{"b":{}}}' >"$scratch/all.yaml"
  if command -v kubeconform >/dev/null; then kubeconform -strict -ignore-missing-schemas "$scratch/all.yaml"; fi
  if helm plugin list | grep -q unittest; then helm unittest deploy/helm/ralph-bot; fi
  step "cluster"
  cat >"$scratch/kind.yaml" <<'END'
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
featureGates: { UserNamespacesSupport: true, ProcMountType: true }
END
  kind create cluster --name ralph-verify --config "$scratch/kind.yaml" --wait 180s
  image=ghcr.io/ralph-bot/ralph-bot:$(sed -n 's/^appVersion: *//p' deploy/helm/ralph-bot/Chart.yaml | tr -d '"')
  docker build -f deploy/docker/Dockerfile -t "$image" .
  kind load docker-image --name ralph-verify "$image"
  kubectl create secret generic ralph-bot-env --from-literal=TOKEN=token
  values='config={"forges":[{"name":"work","kind":"gitea","url":"http://127.0.0.1:9","token_env":"TOKEN","updates":"poll"}],"repositories":["work:team/app"],"backends":{"mine":{"type":"script","command":["sh","-c","true"]}}}'
  for mode in userNamespace landlock; do
    step "$mode"
    helm upgrade --install ralph-bot deploy/helm/ralph-bot --set-json "$values" --set secrets.existingSecret=ralph-bot-env \
      --set persistence.size=1Gi --set "sandbox.mode=$mode" --wait --timeout 5m
    helm test ralph-bot
    kubectl exec ralph-bot-0 -- ralph-bot check | tee "$scratch/check" || true
    case $mode in
      userNamespace) grep -q 'sandbox: bubblewrap .*tier A' "$scratch/check" ;;
      # The nodes' kernel decides: Linux 6.12 and newer has it.
      landlock) grep -q 'tier B' "$scratch/check" || uname -r ;;
    esac
  done
  step "a backup and its restore, by the commands of the chart's README"
  kubectl exec ralph-bot-0 -- ralph-bot backup /data/backup.db
  kubectl cp ralph-bot-0:/data/backup.db "$scratch/backup.db"
  kubectl exec ralph-bot-0 -- rm /data/backup.db
  sed -n '/^kubectl scale statefulset ralph-bot --replicas 0/,/^```/p' deploy/helm/ralph-bot/README.md | grep -v '^```' \
    | sed "s|ghcr.io/ralph-bot/ralph-bot:VERSION|$image|" >"$scratch/restore"
  (cd "$scratch" && sh -euc ". ./restore")
  kubectl rollout status statefulset ralph-bot --timeout 3m
  kubectl exec ralph-bot-0 -- ralph-bot loops
  step "the data outlives the release"
  helm uninstall ralph-bot --wait
  kubectl get pvc data-ralph-bot-0
  several_pods
}

# Control pods and runners on a PostgreSQL in the cluster. `$values` is the configuration.
several_pods() {
  step "PostgreSQL"
  kubectl run postgres --image=postgres:17 --port=5432 --expose --env=POSTGRES_USER=ralph --env=POSTGRES_PASSWORD=secret --env=POSTGRES_DB=ralph
  kubectl wait --for=condition=Ready pod/postgres --timeout=3m
  kubectl create secret generic ralph-bot-db --from-literal=password=secret
  several=(--set "database.url=postgres://ralph@postgres/ralph?sslmode=disable" --set database.passwordSecret=ralph-bot-db
    --set secrets.existingSecret=ralph-bot-env --set sandbox.mode=landlock --set networkPolicy.enabled=false --set runners.size=1Gi)
  step "two control pods and two runners"
  helm install ralph-bot deploy/helm/ralph-bot --set-json "$values" "${several[@]}" --wait --timeout 5m
  helm test ralph-bot
  kubectl exec deployment/ralph-bot-control --container ingest -- ralph-bot loops
  test "$(kubectl get pods --selector app.kubernetes.io/component=control --no-headers | wc -l)" = 2
  test "$(kubectl get pdb ralph-bot-runner --output jsonpath='{.status.disruptionsAllowed}')" = 1
  step "a runner drains and leaves before its grace period ends"
  runner=$(kubectl get pods --selector app.kubernetes.io/component=runner --output jsonpath='{.items[0].metadata.name}')
  kubectl delete pod "$runner" --timeout=2m
  kubectl rollout status deployment ralph-bot-runner --timeout 3m
  kubectl exec postgres -- psql --username ralph --tuples-only --command "SELECT stopped, draining FROM hosts WHERE name = '$runner'" \
    | tee "$scratch/host"
  grep -q '1 *| *1' "$scratch/host"
  step "KEDA"
  kubectl apply --server-side --filename https://github.com/kedacore/keda/releases/download/v2.17.2/keda-2.17.2.yaml
  kubectl --namespace keda rollout status deployment keda-operator --timeout 5m
  kubectl exec postgres -- psql --username ralph --command "CREATE ROLE keda LOGIN PASSWORD 'keda'" \
    --command "GRANT SELECT ON outbox, loops, leases, loop_files, hosts TO keda"
  kubectl create secret generic ralph-bot-keda --from-literal=connection='postgresql://keda:keda@postgres.default:5432/ralph?sslmode=disable'
  helm upgrade ralph-bot deploy/helm/ralph-bot --set-json "$values" "${several[@]}" --set runners.mode=scaledJob \
    --set runners.scaledJob.connectionSecret=ralph-bot-keda --wait --timeout 5m
  kubectl wait --for=condition=Ready scaledjob/ralph-bot-runner --timeout=3m
  step "KEDA starts a runner for due work. It rejects the effect, has no other work, and the job is complete"
  kubectl exec postgres -- psql --username ralph --command "INSERT INTO outbox (subject, lane, key, effect, place, created_at)
    VALUES ('none', 'work', 'release', '{}', '{}', 0)"
  kubectl wait --for=create job --selector scaledjob.keda.sh/name=ralph-bot-runner --timeout=2m
  kubectl wait --for=condition=Complete job --selector scaledjob.keda.sh/name=ralph-bot-runner --timeout=5m
}

case "${1:-}" in
  docker) docker_engine ;;
  kind) kind_cluster ;;
  seccomp) deploy/docker/seccomp-profile --check ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
echo "all held"
