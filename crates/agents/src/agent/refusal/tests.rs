//! Short texts as programs print them.

use super::*;

#[test]
fn only_short_refusals_are_recognized() {
    for refusal in [
        "Invalid API key · Please run /login",
        "Please sign in to continue",
        "You are not logged in.",
        "Invalid auth method selected.",
        "x is no longer maintained",
        "error: unknown option '--json'",
    ] {
        assert!(no_answer(refusal).is_some(), "{refusal}");
    }
    for answer in ["", "All done.", "I added the login page.", &"x no longer maintained\n".repeat(200)] {
        assert_eq!(no_answer(answer), None, "{answer}");
    }
}

#[test]
fn messages_about_a_login_are_recognized() {
    for message in [
        "Invalid API key · Please run /login",
        "Not logged in",
        "Please set an Auth method in your settings.json",
        "unexpected status 401 Unauthorized: Missing bearer or basic authentication in header",
    ] {
        assert!(asks_for_login(message), "{message}");
    }
    for message in ["Your credit balance is too low", "the model `x` does not exist"] {
        assert!(!asks_for_login(message), "{message}");
    }
}
