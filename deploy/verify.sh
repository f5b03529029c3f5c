#!/usr/bin/env bash
# Tries what needs a container engine or a cluster. CI of a machine without these runs deploy/tests instead.
#
#   deploy/verify.sh docker   builds the images, starts compose.yaml, asks for a token and whether the sandbox holds (Docker 25, compose 2.24)
#   deploy/verify.sh kind     installs the chart on a new cluster in Docker (kind 0.27, kubectl, helm 3.17 or 4)
#   deploy/verify.sh seccomp  compares the reviewed seccomp profile with Docker's newest
set -euo pipefail
cd "$(dirname "$0")/.."

need() { for tool in "$@"; do command -v "$tool" >/dev/null || { echo "deploy/verify.sh: $tool is not installed" >&2; exit 2; }; done; }
step() { printf '\n--- %s\n' "$*"; }
scratch=$(mktemp -d)

docker_engine() {
  need docker
  docker info >/dev/null || { echo "deploy/verify.sh: no Docker engine answers" >&2; exit 2; }
  trap 'docker rm -f ralph-verify >/dev/null 2>&1 || true; docker volume rm -f ralph-verify >/dev/null 2>&1 || true; rm -rf "$scratch"' EXIT
  step "build"
  docker build -f deploy/docker/Dockerfile -t ralph-bot .
  docker build -f deploy/docker/Dockerfile --target agents -t ralph-bot:agents .
  step "not root"
  test "$(docker run --rm --entrypoint id ralph-bot -u)" = 1000
  cat >"$scratch/ralph-control.yaml" <<'END'
forges: [{ name: work, kind: gitea, url: "http://127.0.0.1:9", token_env: TOKEN, updates: poll }]
repositories: ["work:team/app"]
backends: { mine: { type: script, command: [sh, -c, "true"] } }
END
  chmod 644 "$scratch/ralph-control.yaml"
  # shellcheck disable=SC2054
  settings=(--read-only --tmpfs /tmp:mode=1777 --tmpfs /home/ralph-bot:uid=1000,gid=1000,mode=0700 --cap-drop ALL
    --volume "$scratch/ralph-control.yaml:/etc/ralph-bot/ralph-control.yaml:ro" --env TOKEN=token)
  step "the sandbox holds with the profile"
  docker run --rm "${settings[@]}" --security-opt seccomp=deploy/docker/seccomp.json --security-opt apparmor=unconfined \
    --security-opt systempaths=unconfined --security-opt no-new-privileges:true ralph-bot check | tee "$scratch/check" || true
  grep -q '^ok .*sandbox: bubblewrap .*tier A' "$scratch/check"
  if grep -q '^FAIL sandbox' "$scratch/check"; then exit 1; fi
  step "the demo in the container"
  docker run --rm "${settings[@]}" --security-opt seccomp=deploy/docker/seccomp.json --security-opt apparmor=unconfined \
    --security-opt systempaths=unconfined --security-opt no-new-privileges:true ralph-bot demo --exit --fast
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
  step "compose.yaml"
  docker compose -f deploy/docker/compose.yaml --profile runner config --quiet
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
  image=ghcr.io/ralph-bot/ralph-bot:$(sed -n 's/^appVersion: *//p' deploy/helm/ralph-bot/Chart.yaml)
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
  step "the data outlives the release"
  helm uninstall ralph-bot --wait
  kubectl get pvc data-ralph-bot-0
}

case "${1:-}" in
  docker) docker_engine ;;
  kind) kind_cluster ;;
  seccomp) deploy/docker/seccomp-profile --check ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
echo "all held"
