//! Checks of requests and answers against the forges' own descriptions (tests only).
