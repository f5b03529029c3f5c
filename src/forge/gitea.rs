//! Gitea and Forgejo by reqwest.
