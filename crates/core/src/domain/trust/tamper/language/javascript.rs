//! JavaScript and TypeScript: jest, vitest, mocha, node:test, ava, tap, playwright, cypress.

use super::Tokens;

pub(super) const TOKENS: Tokens = Tokens {
    extensions: &["js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts", "vue", "svelte"],
    comments: &["//", "/*", "* "],
    test: r#"^\s*(?:await\s+)?(?:x|f)?(?:it|test|specify|t\.test|Deno\.test)(?:\.\w+)*\s*(?:\((?:[^()]|\([^()]*\))*\)\s*)?\(\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|`([^`]*)`)|^\s*Deno\.test(?:\.\w+)*\(\s*(\{)"#,
    mark: "",
    function: r"^\s*(?:export\s+)?(?:async\s+)?function\s+(\w+)|^\s*(?:export\s+)?(?:const|let|var)\s+(\w+)\s*=\s*(?:async\s+)?(?:function\b|\([^()]*\)\s*(?::[^=]+)?=>|\w+\s*=>)|^\s*[xf]?(?:describe|suite|context)(?:\.\w+)*\(\s*['\x22`]([^'\x22`]*)",
    skip: r"^\s*(?:xit|xtest|xdescribe|xspecify|xcontext|fit|fdescribe)\s*\(|^\s*(?:await\s+)?(?:it|test|describe|suite|context|t)(?:\.\w+)*\.(?:skip|todo|only|failing|fixme|fails|skipIf|runIf)\b|^\s*(?:it|test|specify)\(\s*(?:'[^']*'|\x22[^\x22]*\x22|`[^`]*`)\s*\)\s*;?\s*$|\bfixme\(|^\s*(?:it|test)\.fail\(\s*(?:\)|'[^']*'\s*,|\x22[^\x22]*\x22\s*,|`[^`]*`\s*,)|\bthis\.skip\(\)|\bt\.skip\(|[{,]\s*(?:skip|todo)\s*:\s*(?:true|['\x22`])|\bDeno\.test\.ignore\b|\bignore:\s*true",
    assertion: r"\bt\.(?:same|strictSame|match|not|ok|notOk|equals|looseEqual|deepEquals|error|rejects|resolves)\(",
    exact: r"\.to(?:Be|Equal|StrictEqual|Match\w*|Contain\w*|Have\w+|Throw\w*|BeCloseTo)\(|\bassert\.(?:equal|strictEqual|deepEqual|deepStrictEqual|throws|rejects|match)\(|\.to\.(?:deep\.)?(?:equal|eql|throw)\(|\bt\.(?:is|deepEqual|equal|same|strictSame|strictEqual)\(",
    weak: r"\bexpectTypeOf\(.*\.(?:toBeAny|toBeUnknown)\(|\bexpect(?:Type|Assignable)<(?:any|unknown)>|\.toMatchSnapshot\(|\.toMatchInlineSnapshot\(\s*\)|\.(?:toBeDefined|toBeTruthy|not\.toBeNull|not\.toBeUndefined|not\.toBeFalsy|toBeInstanceOf|resolves\.toBeDefined)\(|\.to(?:Be|Equal)\(\s*expect\.any\w*\(|\.toThrow(?:Error)?\(\s*\)|\bexpect\.anything\(\)|\.to\.exist\b|\.to\.be\.ok\b|\.to\.be\.an?\(|\bassert(?:\.ok)?\(\s*\w+\s*\)|\.toBeGreaterThanOrEqual\(\s*0|\.to\.throw\(\s*\)|\bt\.(?:ok|pass)\(|\.toHaveBeenCalled\(\s*\)",
    exit: r"\bprocess\.(?:exit\(\s*0?\s*\)|exitCode\s*=\s*0|reallyExit\()|\bDeno\.exit\(\s*0?\s*\)",
    swallow: r"\bcatch\s*(?:\(\s*\w*\s*\))?\s*\{|\.catch\(\s*(?:\(\s*\w*\s*\)|\w+)\s*=>\s*(?:\{\s*\}|undefined|null)",
    asks_for_tests: r"\bprocess\.env\.(?:JEST_WORKER_ID|VITEST)\b|\bprocess\.env\.NODE_ENV\s*={2,3}\s*['\x22]test['\x22]",
    mock: r"\bspyOn\([^,]+,\s*['\x22`](\w+)['\x22`]\)\s*\.mock|\bsinon\.stub\([^,]+,\s*['\x22`](\w+)['\x22`]|^\s*\w+\.(\w+)\s*=\s*(?:(?:jest|vi)\.fn\(|(?:async\s*)?(?:\([^()]*\)\s*=>|function\b))",
    any_value: r#"\basymmetricMatch\b|\bjest\.asymmetricMatcher|\bexpect\.(?:any|anything)\(|\bsinon\.match\b|(?:\bfrom|\brequire\(|\bimport\(|^\s*import)\s*["'](?:sinon|vitest|expect|chai|jest|jest-mock|@jest/\w+|@vitest/\w+|node:test|testdouble|ts-mockito)["']"#,
    assertion_api: r#"^\s*(?:(?:assert|expect|chai|should)\w*\.)+(?:equal|strictEqual|deepEqual|deepStrictEqual|notEqual|ok|throws|rejects|match|fail|is|same|extend)\s*=[^=>]|\brequire\(\s*["'](?:node:)?(?:assert(?:/strict)?|test|vitest|chai|expect)["']\s*\)(?:\.\w+)+\s*=[^=>]|\bexpect\.extend\(|\b(?:global|globalThis|window)\.(?:expect|assert|it|test|describe)\s*=[^=]|\bprocess\.(?:exit|reallyExit|emit)\s*=[^=]|\bObject\.(?:assign|definePropert(?:y|ies))\(\s*(?:require\(\s*["'](?:node:)?assert|assert\b|expect\b|process\s*,\s*["']exitCode)|\bAssertionError(?:\.\w+)*\s*=[^=>]|^\s*Object\.is\s*=[^=]|\bModule\._load\s*=[^=]"#,
    hard_exit: r#"\breallyExit\b|\bprocess\s*\[\s*["'`](?:reallyExit|exit)\b"#,
    exit_hook: r#"\bprocess\.(?:on|once|addListener|prependListener|prependOnceListener)\(\s*["'`](?:exit|beforeExit|uncaughtException\w*|unhandledRejection)"#,
    last_definition_wins: false,
    collected: r"\.(?:test|spec|cy)\.|[_-](?:test|spec)s?\.[cm]?[jt]sx?$|^(?:tests?|spec)\.[cm]?[jt]sx?$|^test[_-][\w.-]*\.[cm]?[jt]sx?$",
};
