//! A repository on this machine without a forge: comments go to the terminal.
