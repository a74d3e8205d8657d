//! What a file that nobody signed may set.
//!
//! A `.env` comes with a clone, and what it says reaches every process that a tool starts.
//! Many programs can be told by a variable to load code, to read a configuration that names
//! commands, or to look for either in another folder. Such a variable would run what nobody
//! verified, so a `.env` cannot set it: whoever means it sets it in the shell, or in the `env`
//! of a signed item.

/// Names, in capitals.
const NAMES: [&str; 66] = [
    // Where programs, libraries and everybody's settings are.
    "PATH",
    "HOME",
    "PWD",
    "OLDPWD",
    "SHELL",
    "TMPDIR",
    "TMP",
    "TEMP",
    "GLIBC_TUNABLES",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERMCAP",
    // Shells.
    "ENV",
    "IFS",
    "SHELLOPTS",
    "BASHOPTS",
    "BASH_ENV",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "PROMPT_COMMAND",
    "ZDOTDIR",
    "FPATH",
    "CDPATH",
    "GLOBIGNORE",
    "INPUTRC",
    // Programs that others start.
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "SUDO_ASKPASS",
    "KUBECONFIG",
    "KUBE_EDITOR",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "DOCKER_CONFIG",
    "PGSYSCONFDIR",
    "CURL_HOME",
    "WGETRC",
    // Interpreters.
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "CLASSPATH",
    "_JAVA_OPTIONS",
    "VIRTUAL_ENV",
    "MONO_PATH",
    "ERL_LIBS",
    "ERL_FLAGS",
    // Compilers and what builds with them.
    "CC",
    "CXX",
    "LD",
    "AR",
    "MAKEFLAGS",
    "MAKEFILES",
    "GOFLAGS",
    "GOPATH",
    "GOROOT",
    "GOENV",
    "GOTOOLCHAIN",
];

/// What names begin with, in capitals.
const BEGINNINGS: [&str; 49] = [
    "LD_",
    "DYLD_",
    "XDG_",
    "BASH_FUNC_",
    "RYE_",
    "GIT_",
    "SSH_",
    "HGRC",
    "SVN_",
    "MALLOC_",
    "OPENSSL_",
    "SSL_",
    "PYTHON",
    "PYENV_",
    "PIP_",
    "UV_",
    "CONDA_",
    "POETRY_",
    "NODE_",
    "NPM_",
    "NVM_",
    "YARN_",
    "PNPM_",
    "COREPACK_",
    "ESBUILD_",
    "TSX_",
    "TS_NODE_",
    "DENO_",
    "BUN_",
    "PERL5",
    "RUBY",
    "GEM_",
    "BUNDLE_",
    "RBENV_",
    "LUA_",
    "JAVA_",
    "JDK_",
    "MAVEN_",
    "GRADLE_",
    "CARGO",
    "RUSTC",
    "RUSTUP_",
    "RUSTDOC",
    "RUSTFLAGS",
    "R_",
    "JULIA_",
    "GHC",
    "OCAML",
    "DOTNET_",
];

/// What begins so and only says how a program behaves.
const HARMLESS: [&str; 6] = [
    "NODE_ENV",
    "NODE_DEBUG",
    "PYTHONUNBUFFERED",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
    "PYTHONHASHSEED",
];

/// Whether an unsigned file may set a variable.
pub fn may_be_set_by_a_file(name: &str) -> bool {
    // Some programs read a name in whichever letters.
    let name = name.to_ascii_uppercase();
    let name = name.as_str();
    let loads = NAMES.contains(&name) || BEGINNINGS.iter().any(|it| name.starts_with(it));
    HARMLESS.contains(&name) || !loads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_sets_what_tools_read_and_nothing_that_loads_code() {
        for name in [
            "PATH",
            "HOME",
            "PYTHONSTARTUP",
            "RYE_DEV_MODE",
            "LD_PRELOAD",
            "PYTHONPATH",
            "NODE_OPTIONS",
            "OPENSSL_CONF",
            "npm_config_node_options",
            "ESBUILD_BINARY_PATH",
            "XDG_CONFIG_HOME",
            "GIT_SSH_COMMAND",
            "BASH_FUNC_x%%",
            "BASH_ENV",
            "RYE_TOKEN",
            "RUBYOPT",
            "RUSTC_WRAPPER",
            "TMPDIR",
            "EDITOR",
            "KUBECONFIG",
            "PERL5OPT",
            "JAVA_TOOL_OPTIONS",
        ] {
            assert!(!may_be_set_by_a_file(name), "{name}");
        }
        for name in [
            "DATABASE_URL",
            "API_TOKEN",
            "MODE",
            "NODE_ENV",
            "PORT",
            "AWS_REGION",
            "RUST_LOG",
            "http_proxy",
            "GOOGLE_PROJECT",
            "PYTHONUNBUFFERED",
            "LANG",
            "TZ",
            "PATHS",
            "MY_LD_FLAG",
            "HOMEPAGE",
            "RACK_ENV",
        ] {
            assert!(may_be_set_by_a_file(name), "{name}");
        }
    }
}
