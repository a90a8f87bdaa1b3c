//! The programs of a cluster: which Go module each comes from, and how it is built.
//!
//! Each module is pinned by the `go.mod` and `go.sum` in `programs/<module>/`. To move to another version, edit
//! `go.mod`, run `go mod tidy` there, and change the version below.

use std::path::PathBuf;

use anyhow::Result;

use crate::cache;

/// A program that the harness can build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Program {
    /// The store behind the API server.
    Etcd,
    /// The API server.
    KubeApiserver,
    /// The controllers of Deployments, StatefulSets, the garbage collector, ….
    KubeControllerManager,
    /// The scheduler.
    KubeScheduler,
    /// The agent of a real node.
    Kubelet,
    /// The command-line client.
    Kubectl,
    /// The player of fake nodes and of the pods on them.
    Kwok,
    /// The Argo Rollouts controller.
    RolloutsController,
    /// The Argo Rollouts plugin of kubectl.
    KubectlArgoRollouts,
    /// Helm 3.
    Helm3,
    /// Helm 4.
    Helm4,
    /// All of Argo CD: `ARGOCD_BINARY_NAME` in its environment says which of its programs it is.
    ArgoCd,
    /// A small program around the engine by which Flux applies: its controllers as a whole cannot be built from modules.
    Flux,
    /// A small program that runs cert-manager's controllers and its CA injector: its own programs replace modules by
    /// folders, and so cannot be built from modules.
    CertManager,
}

/// The package of a program that is not another module's: the one of the module's own source.
pub(crate) const OWN_PACKAGE: &str = ".";

/// The files of a Go module that pins others.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
    /// Names the packages of others, or is a program of its own.
    pub(crate) source: &'static str,
}

/// A folder or file of a Go module that is kept beside the program.
#[derive(Debug)]
pub(crate) struct Asset {
    /// The module that has it.
    pub(crate) module: &'static str,
    /// Its path within the module.
    pub(crate) path: &'static str,
    /// Its name in the cache entry.
    pub(crate) name: &'static str,
}

/// How a program is built.
#[derive(Debug)]
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) package: &'static str,
    pub(crate) module: &'static Module,
    pub(crate) ldflags: &'static str,
    /// The Go toolchain to use, as the value of `GOTOOLCHAIN`.
    pub(crate) toolchain: &'static str,
    pub(crate) assets: &'static [Asset],
    /// How long a first build takes on a small machine, for the progress line.
    pub(crate) duration: &'static str,
}

/// Flags of every `go build`: nothing of the machine in the result, no debug tables.
pub(crate) const BUILD_FLAGS: &[&str] = &["-trimpath"];
/// Environment of every `go` command. Static programs, and nothing taken from the caller's own Go settings.
pub(crate) const BUILD_ENVIRONMENT: &[(&str, &str)] =
    &[("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=readonly"), ("GOWORK", "off")];

const STRIP: &str = "-s -w";
const KUBERNETES_VERSION: &str = "v1.36.3";
/// The version is not in the module's sources: without these flags the programs would call themselves v0.0.0, the last
/// of them where they name themselves as clients.
const KUBERNETES_LDFLAGS: &str = "-s -w \
    -X k8s.io/component-base/version.gitVersion=v1.36.3 \
    -X k8s.io/component-base/version.gitMajor=1 \
    -X k8s.io/component-base/version.gitMinor=36 \
    -X k8s.io/client-go/pkg/version.gitVersion=v1.36.3";
/// Any Go from the one that the module's `go.mod` asks for.
const ANY_GO: &str = "auto";
const ROLLOUTS_VERSION: &str = "v1.10.2";
/// The modules of Argo and Flux ask for more than Go 1.26.8; this release is known to build them.
const ARGO_GO: &str = "go1.27.3";

macro_rules! module {
    ($name:literal) => {
        module!($name, "tools.go")
    };
    ($name:literal, $source:literal) => {
        &Module {
            go_mod: include_str!(concat!("../programs/", $name, "/go.mod")),
            go_sum: include_str!(concat!("../programs/", $name, "/go.sum")),
            source: include_str!(concat!("../programs/", $name, "/", $source)),
        }
    };
}

static KUBERNETES: &Module = module!("kubernetes");
static ARGO_ROLLOUTS: &Module = module!("argo-rollouts");

static ETCD: Recipe = Recipe {
    name: "etcd",
    version: "v3.6.16",
    package: "go.etcd.io/etcd/server/v3",
    module: module!("etcd"),
    ldflags: STRIP,
    toolchain: ANY_GO,
    assets: &[],
    duration: "30 s",
};
static KWOK: Recipe = Recipe {
    name: "kwok",
    version: "v0.8.0",
    package: "sigs.k8s.io/kwok/cmd/kwok",
    module: module!("kwok"),
    ldflags: STRIP,
    toolchain: ANY_GO,
    assets: &[Asset { module: "sigs.k8s.io/kwok", path: "kustomize/stage", name: "stage" }],
    duration: "1 min",
};
static HELM3: Recipe = Recipe {
    name: "helm",
    version: "v3.22.0",
    package: "helm.sh/helm/v3/cmd/helm",
    module: module!("helm3"),
    ldflags: STRIP,
    toolchain: ANY_GO,
    assets: &[],
    duration: "1 min",
};
static HELM4: Recipe = Recipe {
    name: "helm",
    version: "v4.3.1",
    package: "helm.sh/helm/v4/cmd/helm",
    module: module!("helm4"),
    ldflags: STRIP,
    toolchain: ANY_GO,
    assets: &[],
    duration: "1 min",
};
static ROLLOUTS_CONTROLLER: Recipe = Recipe {
    name: "rollouts-controller",
    version: ROLLOUTS_VERSION,
    package: "github.com/argoproj/argo-rollouts/cmd/rollouts-controller",
    module: ARGO_ROLLOUTS,
    ldflags: STRIP,
    toolchain: ARGO_GO,
    assets: &[Asset { module: "github.com/argoproj/argo-rollouts", path: "manifests/crds", name: "crds" }],
    duration: "2 min",
};
static KUBECTL_ARGO_ROLLOUTS: Recipe = Recipe {
    name: "kubectl-argo-rollouts",
    version: ROLLOUTS_VERSION,
    package: "github.com/argoproj/argo-rollouts/cmd/kubectl-argo-rollouts",
    module: ARGO_ROLLOUTS,
    ldflags: STRIP,
    toolchain: ARGO_GO,
    assets: &[],
    duration: "1 min",
};

static FLUX: Recipe = Recipe {
    name: "flux-apply",
    version: "v0.84.0",
    package: OWN_PACKAGE,
    module: module!("flux", "main.go"),
    ldflags: STRIP,
    toolchain: ARGO_GO,
    assets: &[],
    duration: "2 min",
};
static CERT_MANAGER: Recipe = Recipe {
    name: "cert-manager",
    version: "v1.21.2",
    package: OWN_PACKAGE,
    module: module!("cert-manager", "main.go"),
    ldflags: STRIP,
    toolchain: ANY_GO,
    assets: &[Asset { module: "github.com/cert-manager/cert-manager", path: "deploy/crds", name: "crds" }],
    duration: "4 min",
};

static ARGO_CD: Recipe = Recipe {
    name: "argocd",
    version: "v3.6.1",
    package: "github.com/argoproj/argo-cd/v3/cmd",
    module: module!("argo-cd"),
    ldflags: "-s -w -X github.com/argoproj/argo-cd/v3/common.version=3.6.1",
    toolchain: ARGO_GO,
    assets: &[
        Asset { module: "github.com/argoproj/argo-cd/v3", path: "manifests/crds", name: "crds" },
        Asset { module: "github.com/argoproj/argo-cd/v3", path: "manifests/base/config", name: "config" },
        Asset {
            module: "github.com/argoproj/argo-cd/v3",
            path: "hack/git-verify-wrapper.sh",
            name: "git-verify-wrapper.sh",
        },
    ],
    duration: "7 min",
};

const fn kubernetes(name: &'static str, package: &'static str, duration: &'static str) -> Recipe {
    Recipe {
        name,
        version: KUBERNETES_VERSION,
        package,
        module: KUBERNETES,
        ldflags: KUBERNETES_LDFLAGS,
        toolchain: ANY_GO,
        assets: &[],
        duration,
    }
}

static KUBE_APISERVER: Recipe = kubernetes("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "3 min");
static KUBE_CONTROLLER_MANAGER: Recipe =
    kubernetes("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "1 min");
static KUBE_SCHEDULER: Recipe = kubernetes("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "30 s");
static KUBELET: Recipe = kubernetes("kubelet", "k8s.io/kubernetes/cmd/kubelet", "1 min");
static KUBECTL: Recipe = kubernetes("kubectl", "k8s.io/kubernetes/cmd/kubectl", "30 s");

impl Program {
    pub(crate) fn recipe(self) -> &'static Recipe {
        match self {
            Self::Etcd => &ETCD,
            Self::KubeApiserver => &KUBE_APISERVER,
            Self::KubeControllerManager => &KUBE_CONTROLLER_MANAGER,
            Self::KubeScheduler => &KUBE_SCHEDULER,
            Self::Kubelet => &KUBELET,
            Self::Kubectl => &KUBECTL,
            Self::Kwok => &KWOK,
            Self::RolloutsController => &ROLLOUTS_CONTROLLER,
            Self::KubectlArgoRollouts => &KUBECTL_ARGO_ROLLOUTS,
            Self::Helm3 => &HELM3,
            Self::Helm4 => &HELM4,
            Self::ArgoCd => &ARGO_CD,
            Self::Flux => &FLUX,
            Self::CertManager => &CERT_MANAGER,
        }
    }

    /// The path of the program, which is built first if the cache does not have it.
    ///
    /// # Errors
    /// If `go` is missing or the build fails; the message says what to do.
    pub async fn path(self) -> Result<PathBuf> {
        let recipe = self.recipe();
        Ok(self.entry().await?.join(recipe.name))
    }

    /// The cache entry: the program and its assets.
    pub(crate) async fn entry(self) -> Result<PathBuf> {
        tokio::task::spawn_blocking(move || cache::ensure(self.recipe())).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_is_the_one_that_its_module_pins() {
        let all = [
            (Program::Etcd, "go.etcd.io/etcd/server/v3"),
            (Program::KubeApiserver, "k8s.io/kubernetes"),
            (Program::Kwok, "sigs.k8s.io/kwok"),
            (Program::RolloutsController, "github.com/argoproj/argo-rollouts"),
            (Program::Helm3, "helm.sh/helm/v3"),
            (Program::Helm4, "helm.sh/helm/v4"),
            (Program::ArgoCd, "github.com/argoproj/argo-cd/v3"),
            (Program::Flux, "github.com/fluxcd/pkg/ssa"),
            (Program::CertManager, "github.com/cert-manager/cert-manager"),
        ];
        for (program, module) in all {
            let recipe = program.recipe();
            let pin = format!("{module} {}\n", recipe.version);
            assert!(recipe.module.go_mod.contains(&pin), "{program:?}: `{pin}` is not in its go.mod");
        }
    }
}
