//! Further traps for the service's git: each uses another file or setting that git obeys.

use super::machine::Script;

/// Scripts, as in `super::git::TRAPS`.
pub const FURTHER_TRAPS: &[Script] = &[
    Script(
        "g1",
        "included-by-condition",
        "printf '[core]\\n\\tfsmonitor = %s\\n' \"$TRAP\" >inc; git config includeIf.gitdir:/.path $PWD/inc; git config includeIf.onbranch:'**'.path $PWD/inc; echo 1 >a",
    ),
    Script(
        "g1",
        "refreshed-index",
        "git config core.fsmonitor \"$TRAP\"; git config core.untrackedCache true; git config core.fsmonitorHookVersion 1; git update-index --fsmonitor --untracked-cache; echo 1 >a",
    ),
    Script(
        "g1",
        "common-folder",
        "mkdir e; git init -q --bare e/r; git -C e/r config core.fsmonitor \"$TRAP\"; echo $PWD/e/r >.git/commondir; echo 1 >a",
    ),
    Script(
        "g2",
        "attributes-file",
        "git config filter.x.clean \"$TRAP\"; echo '* filter=x' >at; git config core.attributesFile $PWD/at; echo 1 >a",
    ),
    Script(
        "g2",
        "merge-driver",
        "git config merge.x.driver \"$TRAP\"; git config merge.default x; echo '* merge=x' >.gitattributes; echo 1 >a; echo 2 >README.md",
    ),
    Script(
        "g2",
        "attributes-of-folders",
        "git config filter.x.smudge \"$TRAP\"; git config filter.x.clean \"$TRAP\"; mkdir -p d/e; echo '* filter=x text eol=crlf working-tree-encoding=UTF-16' >d/.gitattributes; echo 1 >d/e/f; echo 1 >a",
    ),
    Script(
        "g3",
        "cached-conversion",
        "git config diff.x.textconv \"$TRAP\"; git config diff.x.cachetextconv true; git config diff.x.binary true; echo '*.md diff=x' >.git/info/attributes; echo 2 >README.md; echo 1 >a",
    ),
    Script(
        "g3",
        "pagers-and-tools",
        "for k in core.pager pager.diff pager.log interactive.diffFilter difftool.x.cmd mergetool.x.cmd diff.tool; do git config $k \"$TRAP\"; done; echo 2 >README.md; echo 1 >a",
    ),
    Script(
        "g4",
        "further-hooks",
        "mkdir -p .git/hooks; for h in prepare-commit-msg post-merge post-rewrite pre-auto-gc pre-rebase pre-applypatch applypatch-msg push-to-checkout post-receive update fsmonitor-watchman sendemail-validate pre-merge-commit; do printf '#!/bin/sh\\n%s\\n' \"$TRAP\" >.git/hooks/$h; chmod +x .git/hooks/$h; done; echo 1 >a",
    ),
    Script(
        "g4",
        "template-folder",
        "mkdir -p t/hooks; printf '#!/bin/sh\\n%s\\n' \"$TRAP\" >t/hooks/post-checkout; chmod +x t/hooks/*; git config init.templateDir $PWD/t; printf '[init]\\n\\ttemplateDir = %s\\n' $PWD/t >~/.gitconfig; echo 1 >a",
    ),
    Script(
        "g4",
        "hooks-in-the-tree",
        "for h in pre-commit post-checkout pre-push post-index-change reference-transaction; do printf '#!/bin/sh\\n%s\\n' \"$TRAP\" >$h; chmod +x $h; done; git config core.hooksPath .; echo 1 >a",
    ),
    Script(
        "g5",
        "absolute-git-file",
        "mv .git e; git --git-dir=e config core.fsmonitor \"$TRAP\"; git --git-dir=e config core.worktree $PWD; echo \"gitdir: $PWD/e\" >.git; echo 1 >a",
    ),
    Script("g5", "git-pipe", "rm -rf .git; mkfifo .git; echo 1 >a"),
    Script(
        "g5",
        "other-spellings",
        "mkdir .GIT .Git; git init -q --bare .GIT/r; git --git-dir=.GIT/r config core.fsmonitor \"$TRAP\"; cp .GIT/r/config .Git/config; mkdir git~1; echo 1 >a",
    ),
    Script(
        "g6",
        "bare-files-in-the-root",
        "git init -q --bare x.tmp; cp -r x.tmp/HEAD x.tmp/config x.tmp/objects x.tmp/refs .; git config -f config core.fsmonitor \"$TRAP\"; git config -f config core.bare false; git config -f config core.worktree $PWD; rm -rf x.tmp; echo 1 >a",
    ),
    Script(
        "g7",
        "refs-of-alternates",
        "git config core.alternateRefsCommand \"$TRAP\"; git config core.alternateRefsPrefixes x; git config uploadpack.packObjectsHook \"$TRAP\"; git config gc.recentObjectsHook \"$TRAP\"; git config receive.procReceiveRefs refs; echo 1 >a",
    ),
    Script(
        "g7",
        "signatures",
        "for k in gpg.program gpg.ssh.program gpg.x509.program gpg.ssh.defaultKeyCommand; do git config $k \"$TRAP\"; done; git config gpg.format ssh; git config commit.gpgSign true; git config tag.gpgSign true; git config push.gpgSign true; git config log.showSignature true; echo 1 >a",
    ),
    Script(
        "g7",
        "trailers-and-editors",
        "git config trailer.x.command \"$TRAP\"; git config trailer.x.cmd \"$TRAP\"; git config trailer.x.ifmissing add; git config sequence.editor \"$TRAP\"; git config core.askPass \"$TRAP\"; git config commit.template $PWD/README.md; git config commit.cleanup scissors; echo 1 >a",
    ),
    Script(
        "g7",
        "remotes",
        "git config remote.origin.url \"ext::sh -c %$TRAP\"; git config remote.origin.pushurl \"ext::$TRAP\"; git config protocol.ext.allow always; git config protocol.allow always; git config remote.origin.receivepack \"$TRAP\"; git config remote.origin.proxy http://127.0.0.1:1; git config remote.origin.vcs x; git config remote.pushDefault origin; git config branch.main.remote origin; echo 1 >a",
    ),
    Script(
        "g7",
        "environment-files",
        "printf 'export GIT_DIR=%s/e GIT_EXTERNAL_DIFF=\"%s\"\\n' $PWD \"$TRAP\" | tee .envrc .env ~/.profile ~/.bashrc >/dev/null; mkdir -p ~/.config/git; printf '[core]\\n\\tfsmonitor = %s\\n' \"$TRAP\" >~/.config/git/config; echo 1 >a",
    ),
    Script(
        "g8",
        "recursion",
        "git config submodule.recurse true; git config fetch.recurseSubmodules true; git config push.recurseSubmodules on-demand; git config submodule.x.update \"!$TRAP\"; git config submodule.x.url .; git config submodule.x.active true; printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = ./\\n\\tupdate = !%s\\n' \"$TRAP\" >.gitmodules; git init -q x; git -C x -c user.name=x -c user.email=x@x commit -q --allow-empty -m x; git add x; echo 1 >a",
    ),
    Script(
        "g8",
        "modules-as-a-link",
        "ln -s $CANARY .gitmodules; mkdir -p .git/modules/x; git config -f .git/modules/x/config core.fsmonitor \"$TRAP\"; echo 1 >a",
    ),
    Script(
        "g8",
        "link-to-a-commit",
        "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),sub; mkdir sub; ln -s $SERVICE sub/.git; echo 1 >a",
    ),
    Script(
        "g9",
        "files-that-git-reads",
        "rm -f .gitattributes .gitignore .mailmap; ln -s $CANARY .gitattributes; ln -s $CANARY .gitignore; ln -s /etc/shadow .mailmap; echo 1 >a",
    ),
    Script(
        "g9",
        "circles",
        "ln -s b l; ln -s l b; ln -s . here; ln -s here/here/here/here far; ln -s /proc/self/root/etc proc; ln -s \"$(printf 'x%.0s' $(seq 1 4000))\" long; echo 1 >a",
    ),
    Script(
        "g9",
        "folder-in-place-of-a-file",
        "rm -f README.md; mkdir README.md; ln -s $CANARY README.md/x; rm -rf src; echo 1 >src; echo 1 >a",
    ),
    Script(
        "g10",
        "pipes-that-git-reads",
        "mkfifo .gitattributes .gitignore .mailmap; rm -f .git/info/exclude; mkfifo .git/info/exclude .git/info/attributes; echo 1 >a",
    ),
    Script(
        "g10",
        "hidden-changes",
        "git update-index --skip-worktree README.md; git update-index --assume-unchanged src/x; git config core.sparseCheckout true; mkdir -p .git/info; echo /nothing >.git/info/sparse-checkout; echo 2 >README.md; echo 1 >a",
    ),
    Script(
        "g10",
        "ignored",
        "echo '*' >.git/info/exclude; git config core.excludesFile $PWD/ex; echo '*' >ex; echo 1 >a",
    ),
    Script(
        "g10",
        "replaced-objects",
        "git config user.name x; git config user.email x@x; c=$(git commit-tree HEAD^{tree} -m other); git replace HEAD $c; echo $c >.git/shallow; echo \"$(git rev-parse HEAD)\" >.git/info/grafts; echo 1 >a",
    ),
    Script(
        "g10",
        "broken-store",
        "echo x >.git/index; echo x >.git/packed-refs; echo 'ref: refs/heads/..' >.git/HEAD; find .git/objects -type f -exec sh -c 'chmod 600 \"$1\"; echo x >\"$1\"' x {} \\;; echo 1 >a",
    ),
    Script(
        "g10",
        "operation-in-progress",
        "git rev-parse HEAD >.git/MERGE_HEAD; cp .git/MERGE_HEAD .git/CHERRY_PICK_HEAD; mkdir -p .git/rebase-merge .git/sequencer; echo \"exec $TRAP\" >.git/rebase-merge/git-rebase-todo; cp .git/rebase-merge/git-rebase-todo .git/sequencer/todo; echo 1 >a",
    ),
    Script(
        "g10",
        "odd-settings",
        "git config core.bare true; git config core.repositoryFormatVersion 99; git config extensions.objectFormat sha256; git config core.bigFileThreshold 1; git config core.autocrlf true; git config core.compression 99; git config pack.windowMemory 1; git config index.version 4; echo 1 >a",
    ),
    Script(
        "g10",
        "long-names",
        "n=$(printf 'n%.0s' $(seq 1 255)); echo 1 >$n; mkdir -p d/$n/$n; echo 1 >d/$n/$n/$n; touch \"$(printf 'e\\314\\201')\" \"$(printf '\\303\\251')\" A.TXT a.txt 'CON' 'x:y' 'x\\y' '.git ' '.git.'; echo 1 >a",
    ),
    Script(
        "g10",
        "many-links",
        "mkdir h; for n in $(seq 1 500); do ln README.md h/$n; done; chmod 4755 README.md; chmod 1777 h; echo 1 >a",
    ),
];
