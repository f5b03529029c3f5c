//! GitHub by octocrab: App or personal token.
