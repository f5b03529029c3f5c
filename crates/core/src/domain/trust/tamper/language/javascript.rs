//! JavaScript and TypeScript: jest, vitest, mocha, node:test, ava, tap, playwright, cypress.

use super::tokens::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts", "vue", "svelte"],
    comments: &["//", "/*", "* "],
    function: r"^\s*(?:export\s+)?(?:async\s+)?function\s+(\w+)|^\s*(?:export\s+)?(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s+)?(?:function\b|\([^()]*\)\s*(?::[^=]+)?=>|\w+\s*=>)|^\s*[xf]?(?:describe|suite|context)(?:\.\w+)*\(\s*['\x22`]([^'\x22`]*)",
    exit: r"\bprocess\.(?:exit\(\s*0?\s*\)|exitCode\s*=\s*0|reallyExit\()|\bDeno\.exit\(\s*0?\s*\)",
    asks_for_tests: r"\bprocess\.env\.(?:JEST_WORKER_ID|VITEST)\b|\bprocess\.env\.NODE_ENV\s*={2,3}\s*['\x22]test['\x22]",
    any_value: r#"\basymmetricMatch\b|\bjest\.asymmetricMatcher|\bexpect\.(?:any|anything)\(|\bsinon\.match\b|(?:\bfrom|\brequire\(|\bimport\(|^\s*import)\s*["'](?:sinon|vitest|expect|chai|jest|jest-mock|@jest/\w+|@vitest/\w+|node:test|testdouble|ts-mockito)["']"#,
    assertion_api: r#"^\s*(?:(?:assert|expect|chai|should)\w*\.)+(?:equal|strictEqual|deepEqual|deepStrictEqual|notEqual|ok|throws|rejects|match|fail|is|same|extend)\s*=[^=>]|\brequire\(\s*["'](?:node:)?(?:assert(?:/strict)?|test|vitest|chai|expect)["']\s*\)(?:\.\w+)+\s*=[^=>]|\bexpect\.extend\(|\b(?:global|globalThis|window)\.(?:expect|assert|it|test|describe)\s*=[^=]|\bprocess\.(?:exit|reallyExit|emit)\s*=[^=]|\bObject\.(?:assign|definePropert(?:y|ies))\(\s*(?:require\(\s*["'](?:node:)?assert|assert\b|expect\b|process\s*,\s*["']exitCode)|\bAssertionError(?:\.\w+)*\s*=[^=>]|^\s*Object\.is\s*=[^=]|\bModule\._load\s*=[^=]"#,
    hard_exit: r#"\breallyExit\b|\bprocess\s*\[\s*["'`](?:reallyExit|exit)\b"#,
    exit_hook: r#"\bprocess\.(?:on|once|addListener|prependListener|prependOnceListener)\(\s*["'`](?:exit|beforeExit|uncaughtException\w*|unhandledRejection)"#,
    collected: r"\.(?:test|spec|cy)\.|[_-](?:test|spec)s?\.[cm]?[jt]sx?$|^(?:tests?|spec)\.[cm]?[jt]sx?$|^test[_-][\w.-]*\.[cm]?[jt]sx?$",
};
