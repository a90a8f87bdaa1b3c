// Applies the objects on its standard input as Flux' kustomize-controller does: by the same engine, with the same
// field manager and owner labels, in stages, and what an inventory has and the input has not is pruned. Prints each
// object and what was done with it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/cli-utils/pkg/object"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The names that kustomize-controller gives the engine.
const (
	controller = "kustomize-controller"
	group      = "kustomize.toolkit.fluxcd.io"
)

func main() {
	namespace := flag.String("namespace", "", "namespace of the Kustomization and of objects that name none")
	inventory := flag.String("inventory", "", "file that lists what the last run applied")
	stages := flag.String("custom-stage-kinds", "", "kinds to apply before others, as GROUP/KIND, parted by commas")
	flag.Parse()
	if err := run(context.Background(), *namespace, *inventory, *stages); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace, inventory, stages string) error {
	objects, err := utils.ReadObjects(os.Stdin)
	if err != nil {
		return fmt.Errorf("failed to read the objects: %w", err)
	}
	options := ssa.DefaultApplyOptions()
	options.CustomStageKinds, err = utils.ParseGroupKindSet(stages)
	if err != nil {
		return err
	}
	manager, err := newManager()
	if err != nil {
		return err
	}
	for _, o := range objects {
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
	}
	manager.SetOwnerLabels(objects, "shop", namespace)
	changes, err := manager.ApplyAllStaged(ctx, objects, options)
	if err != nil {
		return err
	}
	stale, err := stale(inventory, objects)
	if err != nil {
		return err
	}
	deletion := ssa.DefaultDeleteOptions()
	deletion.Inclusions = manager.GetOwnerLabels("shop", namespace)
	deleted, err := manager.DeleteAll(ctx, stale, deletion)
	if err != nil {
		return err
	}
	changes.Append(deleted.Entries)
	for _, entry := range changes.Entries {
		fmt.Println(entry.String())
	}
	return nil
}

func newManager() (*ssa.ResourceManager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	api, err := client.New(config, client.Options{})
	if err != nil {
		return nil, err
	}
	poller := polling.NewStatusPoller(api, api.RESTMapper(), polling.Options{})
	return ssa.NewResourceManager(api, poller, ssa.Owner{Field: controller, Group: group}), nil
}

// What the inventory has and the objects have not. The objects become the inventory.
func stale(inventory string, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	var before []*unstructured.Unstructured
	text, err := os.ReadFile(inventory)
	if err == nil {
		err = json.Unmarshal(text, &before)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("failed to read the inventory: %w", err)
	}
	text, err = json.Marshal(objects)
	if err != nil {
		return nil, err
	}
	gone := object.UnstructuredSetToObjMetadataSet(before).Diff(object.UnstructuredSetToObjMetadataSet(objects))
	var stale []*unstructured.Unstructured
	for _, o := range before {
		if gone.Contains(object.UnstructuredToObjMetadata(o)) {
			stale = append(stale, o)
		}
	}
	return stale, os.WriteFile(inventory, text, 0o600)
}
