//! Tests of the Gitea and Forgejo adapter.
