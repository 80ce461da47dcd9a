package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// fieldManager owns what Apply writes.
const fieldManager = "slicefeed-lab"

// applier turns YAML documents into server-side applies.
type applier struct {
	client dynamic.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newApplier(config *rest.Config) (*applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return &applier{client: client, mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoverer))}, nil
}

// Apply applies the documents of YAML files in order, as admin and on the server's side.
// Unknown and duplicate fields are errors, so that a typing mistake in a manifest cannot
// hide. What bears no namespace goes to "default".
func (cp *ControlPlane) Apply(ctx context.Context, manifestFiles ...string) error {
	for _, path := range manifestFiles {
		raw, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("apply to %s: %w", cp.name, err)
		}
		if err := cp.ApplyYAML(ctx, raw); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// ApplyYAML does what Apply does with documents from memory.
func (cp *ControlPlane) ApplyYAML(ctx context.Context, documents []byte) error {
	applier, err := cp.sharedApplier()
	if err != nil {
		return fmt.Errorf("apply to %s: %w", cp.name, err)
	}
	if err := applier.applyAll(ctx, documents); err != nil {
		return fmt.Errorf("apply to %s: %w", cp.name, err)
	}
	return nil
}

// ApplyTo does what ApplyYAML does to any cluster, with whatever rights config has.
func ApplyTo(ctx context.Context, config *rest.Config, documents []byte) error {
	applier, err := newApplier(config)
	if err != nil {
		return fmt.Errorf("apply to %s: %w", config.Host, err)
	}
	if err := applier.applyAll(ctx, documents); err != nil {
		return fmt.Errorf("apply to %s: %w", config.Host, err)
	}
	return nil
}

func (cp *ControlPlane) sharedApplier() (*applier, error) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if cp.applier == nil {
		made, err := newApplier(cp.admin)
		if err != nil {
			return nil, err
		}
		cp.applier = made
	}
	return cp.applier, nil
}

func (a *applier) applyAll(ctx context.Context, documents []byte) error {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(documents)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = a.apply(ctx, document)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
	}
}

func (a *applier) apply(ctx context.Context, document []byte) error {
	raw, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	if string(raw) == "null" { // only comments, or nothing
		return nil
	}
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(raw); err != nil {
		return err
	}
	what := object.GetKind() + " " + object.GetName()
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		a.mapper.Reset() // a definition applied just before may have brought it
		mapping, err = a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	var resource dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		namespace := object.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		resource = a.client.Resource(mapping.Resource).Namespace(namespace)
	}
	force := true
	// A patch rather than the client's Apply, whose options have no strict validation.
	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, raw, metav1.PatchOptions{
		FieldManager: fieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict,
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
