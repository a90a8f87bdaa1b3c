//go:build tools

// Package tools names the programs of this module, so that `go mod tidy` keeps what they need.
package tools

import (
	_ "github.com/argoproj/argo-rollouts/cmd/kubectl-argo-rollouts"
	_ "github.com/argoproj/argo-rollouts/cmd/rollouts-controller"
)
