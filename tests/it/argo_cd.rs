//! Argo CD: each way to compare and to synchronise × each kind of workload × each kind of commit.

use anyhow::Result;

use crate::support::{Kind, World, application::Options, argo_story::tell, tests};

tests! {
    Shared server_side_diff_and_server_side_apply_with_a_deployment,
    Shared server_side_diff_and_server_side_apply_with_a_rollout,
    Shared server_side_diff_and_client_side_apply_with_a_deployment,
    Shared server_side_diff_and_client_side_apply_with_a_rollout,
    Shared default_diff_and_ignored_differences_with_a_deployment,
    Shared default_diff_and_ignored_differences_with_a_rollout,
}

const SERVER_SIDE: Options =
    Options { compare: "ServerSideDiff=true", sync: &["ServerSideApply=true"], no_self_heal: false };
const CLIENT_SIDE_APPLY: Options = Options { sync: &[], ..SERVER_SIDE };
const DEFAULT: Options = Options { compare: "", sync: &[], no_self_heal: false };

async fn server_side_diff_and_server_side_apply_with_a_deployment(world: &World) -> Result<()> {
    tell(world, world.argo_cd().await?, &SERVER_SIDE, Kind::Deployment).await
}

async fn server_side_diff_and_server_side_apply_with_a_rollout(world: &World) -> Result<()> {
    tell(world, world.argo_cd().await?, &SERVER_SIDE, Kind::Rollout).await
}

async fn server_side_diff_and_client_side_apply_with_a_deployment(world: &World) -> Result<()> {
    tell(world, world.argo_cd().await?, &CLIENT_SIDE_APPLY, Kind::Deployment).await
}

async fn server_side_diff_and_client_side_apply_with_a_rollout(world: &World) -> Result<()> {
    tell(world, world.argo_cd().await?, &CLIENT_SIDE_APPLY, Kind::Rollout).await
}

async fn default_diff_and_ignored_differences_with_a_deployment(world: &World) -> Result<()> {
    tell(world, world.patched_argo_cd().await?, &DEFAULT, Kind::Deployment).await
}

async fn default_diff_and_ignored_differences_with_a_rollout(world: &World) -> Result<()> {
    tell(world, world.patched_argo_cd().await?, &DEFAULT, Kind::Rollout).await
}
