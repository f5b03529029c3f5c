//! Names of files that configure checks or have targets that checks may run.

// Names of files that hold nothing but the configuration of checks.
pattern!(
    WHOLE,
    r"^(?:pytest\.ini|\.pytest\.ini|tox\.ini|noxfile\.py|\.coveragerc|mypy\.ini|\.mypy\.ini|pyrightconfig\.json|\.?ruff\.toml|\.flake8|\.pylintrc|\.bandit|(?:jest|vitest|karma|playwright|cypress|ava|wdio|web-test-runner|eslint|stylelint|knip|c8)\.(?:config|conf|workspace)\.[a-z]+|\.(?:mocharc|eslintrc|stylelintrc|nycrc|c8rc|prettierrc)(?:\.[a-z]+)?|\.eslintignore|\.prettierignore|biome\.jsonc?|\.?clippy\.toml|\.?rustfmt\.toml|deny\.toml|nextest\.toml|tarpaulin\.toml|\.golangci\.(?:ya?ml|toml|json)|phpunit\.xml(?:\.dist)?|phpstan\.neon(?:\.dist)?|\.rspec|\.rubocop(?:_todo)?\.yml|\.?codecov\.ya?ml|\.pre-commit-config\.yaml|lefthook\.yml|sitecustomize\.py|usercustomize\.py|testng\.xml|CTestCustom\.cmake|(?:pytest|unittest|_pytest)\.py|GNUmakefile|\.travis\.yml|azure-pipelines[\w.-]*\.ya?ml|Jenkinsfile\w*|\.?appveyor\.yml|\.drone\.yml|bitbucket-pipelines\.yml|\.cirrus\.ya?ml|cloudbuild\.ya?ml|\.?wercker\.yml|Earthfile|mocha\.opts|\.taprc|\.jasmine|bunfig\.toml|\.shellspec|\.shellcheckrc|\.clang-tidy|\.simplecov|cucumber\.ya?ml|\.swiftlint\.yml|\.yamllint\S*|\.hadolint\.yaml|\.env\.test\S*|junit-platform\.properties|\.jshintrc|\.luacheckrc|\.credo\.exs|spec\.opts|\.minitest|\.lintstagedrc\S*|\.lintstagedrc|psalm\S*\.xml|infection\.json5?\S*|behat\.ya?ml\S*|codeception\S*\.ya?ml|phpcs\.xml\S*|\.php-cs-fixer(?:\.dist)?\.php|\.phpunit\S*|ecs\.php|rector\.php|pint\.json|checkstyle\S*\.xml|pmd\S*\.xml|spotbugs\S*\.xml|detekt\S*\.yml|\.scalafmt\.conf|mutmut\S*|setup\.cfg\.test|\.testcoverage\.yml|\.gotestsum\S*|\.gcovr\S*|gcovr\.cfg|\.lcovrc|\.cppcheck\S*|\.valgrind\S*|valgrind\S*\.supp|lsan\.supp|tsan\.supp|asan\.supp|org\.mockito\.\S*|org\.junit\.\S*|Pest\.php|\.batsrc)$"
);
// Configuration of a runner or linter under another name: the tool is a word of the name, and the format one of configuration.
pattern!(
    NAMED,
    r"(?i)^(?:[\w-]*[._-])?(?:jest|vitest|playwright|wdio|phpunit|codecept|codeception|behat|rspec|testng|junit|surefire|nextest|ctest|gtest|pytest|testem|stryker|phpstan|eslint|rubocop|golangci|tarpaulin|checkstyle|spotbugs|ktlint|shellspec|pylint|mypy|flake8)\d?(?:[._-][\w.-]*)?\.(?:ya?ml|json5?|toml|ini|cfg|xml(?:\.dist)?|neon(?:\.dist)?|conf|rc|opts|properties|config\.[cm]?[jt]s|conf\.[cm]?[jt]s)$"
);
// The same for tools whose name is a word of the language: another word says that it is configuration.
pattern!(
    NAMED_AS_CONFIG,
    r"(?i)^(?:[\w-]*[._-])?(?:mocha|karma|cypress|infection|cucumber|coverage|nyc|jasmine|nightwatch|psalm|detekt|clippy|sonar|ruff|tox|suite)s?(?:[._-][\w-]+)*[._-](?:conf|config|configuration|settings|setup|rules|project|ci|e2e|unit|integration|acceptance|smoke|functional|baseline|ignore|dist|local|base|strict|tests?)(?:[._-][\w-]+)*\.(?:ya?ml|json5?|toml|ini|cfg|xml(?:\.dist)?|neon(?:\.dist)?|conf|rc|opts|properties|[cm]?[jt]s)$|^(?:[\w-]+[._-])?(?:config|conf|ci|e2e|unit|integration|acceptance|smoke|functional|tests?)[._-](?:mocha|karma|cypress|infection|cucumber|coverage|nyc|jasmine|nightwatch|psalm|detekt|clippy|sonar|ruff|tox|suite)\.(?:ya?ml|json5?|toml|ini|cfg|xml|neon|conf|opts|properties)$|^(?:karma|nyc|coverage|cypress|mocha|infection|jasmine|cucumber)\.(?:conf|config|env)\.\w+$|^sonar\.properties$|^(?:ruff|tox|clippy|nyc|coverage|mocha|psalm)\.(?:toml|ini|cfg|opts|xml|rc)$"
);
pattern!(
    WHOLE_PATH,
    r"(?:^|/)(?:\.config/nextest\.toml|\.cargo/config(?:\.toml)?|\.husky/[^/]+|(?:node_modules/\.bin|vendor/bin)/[^/]+|\.circleci/[^/]+|\.buildkite/[^/]+|\.semaphore/[^/]+|\.teamcity/.+|mockito-extensions/[^/]+|META-INF/services/org\.(?:junit|testng|mockito|spockframework)[^/]*|\.git/hooks/[^/]+|\.githooks/[^/]+)$"
);
/// Whether every change of this file affects the checks.
pub(super) fn is_check_config(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    WHOLE.is_match(name) || NAMED.is_match(name) || NAMED_AS_CONFIG.is_match(name) || WHOLE_PATH.is_match(path)
}

/// Whether a file has targets or tasks that checks may run.
pub(super) fn is_makefile(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "Makefile" | "makefile" | "GNUmakefile" | "justfile" | "Justfile" | "Taskfile.yml" | "Rakefile")
}
