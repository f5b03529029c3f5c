//! step(loop, input, now, policy): the state machine of a loop.
