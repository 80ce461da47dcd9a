// Package adopt is the writer's command that makes somebody else's EndpointSlice one of the
// writer's, so that it is taken over in place. It promises to change one label and nothing
// else, and only of the very slice that it judged. It refuses slices that their makers would
// take back or the writer would not keep up, each with a sentence that says what to do; and it
// is no part of serve: it runs with a person's own credential, since the writer's may not do it.
package adopt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/services/internal/command"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// fieldManager is how the API server books the new label.
const fieldManager = "slicefeed-adopt"

// Config is all that can be set. What the writer has, too, is called as it is there, so that the
// writer's env file can be used as it is; the writer's credential in it is not.
type Config struct {
	Kubeconfig string `flag:"kubeconfig" placeholder:"file" help:"your kubeconfig, or several in the syntax of kubectl; ~/.kube/config when unset"`
	Context    string `flag:"kube-context" placeholder:"name" help:"context of the kubeconfig; its current context when unset"`
	Class      string `flag:"class" default:"default" placeholder:"name" help:"name of the writer's installation"`
	Namespace  string `flag:"target-namespace" placeholder:"name" help:"namespace of the writer's named target, if it has one"`
	Service    string `flag:"target-service-name" placeholder:"name" help:"name of the named target"`
	ManagedBy  string `flag:"target-managed-by" placeholder:"label value" help:"value of endpointslice.kubernetes.io/managed-by on its slices; slicefeed-CLASS when unset"`
	DryRun     bool   `flag:"dry-run" help:"try the change at the API server without persisting it"`
}

// Validate reports every problem that no single setting shows.
func (c *Config) Validate() error {
	var problems []error
	add := func(setting, value, want string) {
		problems = append(problems, &settings.Problem{Setting: setting, Value: value, Expected: want})
	}
	if wrong := validation.IsDNS1123Label("slicefeed-" + c.Class); len(wrong) > 0 {
		add("CLASS", c.Class, "a short DNS label: "+strings.Join(wrong, "; "))
	}
	if wrong := validation.IsValidLabelValue(c.ManagedBy); len(wrong) > 0 {
		add("TARGET_MANAGED_BY", c.ManagedBy, "a label value: "+strings.Join(wrong, "; "))
	}
	if strings.HasSuffix(c.ManagedBy, ".k8s.io") {
		add("TARGET_MANAGED_BY", c.ManagedBy, "a value of your own: those that end in .k8s.io are Kubernetes' own controllers'")
	}
	switch {
	case c.Service != "" && c.Namespace == "":
		add("TARGET_NAMESPACE", "", "the namespace of TARGET_SERVICE_NAME")
	case c.Service == "" && c.ManagedBy != "":
		add("TARGET_SERVICE_NAME", "", "the target that TARGET_MANAGED_BY is for")
	}
	return errors.Join(problems...)
}

func (c *Config) installation() Installation {
	i := Installation{Class: c.Class, ManagedBy: c.ManagedBy}
	if c.Service != "" {
		i.Target = types.NamespacedName{Namespace: c.Namespace, Name: c.Service}
	}
	return i
}

// newClient goes by client-go's standard rules, as kubectl does.
func (c *Config) newClient() (kubernetes.Interface, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	switch files := filepath.SplitList(c.Kubeconfig); len(files) {
	case 0:
	case 1:
		rules.ExplicitPath = c.Kubeconfig // an error if it is not there
	default:
		rules.Precedence = files
	}
	cluster, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("%w:\n- KUBECONFIG=%q, KUBE_CONTEXT=%q: want a kubeconfig of yours: %w", settings.ErrConfiguration, c.Kubeconfig, c.Context, err)
	}
	client, err := kubernetes.NewForConfig(cluster)
	return client, cluster.Host, err
}

// NewCommand is the command.
func NewCommand() command.StandaloneCommand {
	return command.NewStandalone("adopt NAMESPACE/SLICE", "Make an EndpointSlice of somebody else's the writer's, with your own kubeconfig: only a label changes",
		func(ctx context.Context, call command.Invocation[Config]) error {
			name, err := parseSliceName(call.Args[0])
			if err != nil {
				return settings.FlagError(err)
			}
			client, host, err := call.Config.newClient()
			if err != nil {
				return err
			}
			fmt.Fprintf(call.Err, "at %s\n", host)
			return adoptSlice(ctx, client, name, call)
		})
}

func parseSliceName(text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return types.NamespacedName{}, fmt.Errorf("%q: want a namespace, a slash and the name of an EndpointSlice", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

func adoptSlice(ctx context.Context, client kubernetes.Interface, name types.NamespacedName, call command.Invocation[Config]) error {
	slice, err := client.DiscoveryV1().EndpointSlices(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read EndpointSlice %s: %w", name, err)
	}
	var service *corev1.Service
	if of := slice.Labels[discoveryv1.LabelServiceName]; of != "" {
		service, err = client.CoreV1().Services(name.Namespace).Get(ctx, of, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			service = nil
		case apierrors.IsForbidden(err):
			return fmt.Errorf("read Service %s/%s%s: %w", name.Namespace, of, ownCredentialHint, err)
		case err != nil:
			return fmt.Errorf("read Service %s/%s: %w", name.Namespace, of, err)
		}
	}
	adoption, err := Check(call.Config.installation(), slice, service)
	if err != nil {
		return fmt.Errorf("EndpointSlice %s is not adopted: %w", name, err)
	}
	if adoption.ManagedBy == "" {
		fmt.Fprintf(call.Out, "EndpointSlice %s is the writer's already, managed by %q: nothing to do\n", name, slice.Labels[discoveryv1.LabelManagedBy])
		return nil
	}
	for _, warning := range adoption.Warnings {
		fmt.Fprintf(call.Err, "warning: %s\n", warning)
	}
	after, err := relabelSlice(ctx, client, slice, adoption.ManagedBy, call.Config.DryRun)
	if err != nil {
		return err
	}
	printChanges(call.Out, slice, after, call.Config.DryRun)
	return nil
}

// ownCredentialHint is for whoever takes the writer's, which may do neither.
const ownCredentialHint = " (it takes a credential of your own that may get services and patch endpointslices: the writer's may not)"

// relabelSlice changes the label of the very slice that was judged: whatever was written since makes
// the API server refuse.
func relabelSlice(ctx context.Context, client kubernetes.Interface, slice *discoveryv1.EndpointSlice, managedBy string, dry bool) (*discoveryv1.EndpointSlice, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": slice.UID, "resourceVersion": slice.ResourceVersion,
		"labels": map[string]string{discoveryv1.LabelManagedBy: managedBy},
	}})
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: fieldManager}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	after, err := client.DiscoveryV1().EndpointSlices(slice.Namespace).Patch(ctx, slice.Name, types.MergePatchType, patch, options)
	hint := ""
	switch {
	case apierrors.IsConflict(err):
		hint = " (it was changed meanwhile; if that happens again, somebody still writes it: stop that first)"
	case apierrors.IsForbidden(err):
		hint = ownCredentialHint
	}
	if err != nil {
		return nil, fmt.Errorf("relabel EndpointSlice %s/%s%s: %w", slice.Namespace, slice.Name, hint, err)
	}
	return after, nil
}

// printChanges says what is different, of the two as the API server has them.
func printChanges(out io.Writer, before, after *discoveryv1.EndpointSlice, dry bool) {
	title := "adopted"
	if dry {
		title = "would be adopted (dry run)"
	}
	fmt.Fprintf(out, "EndpointSlice %s/%s of Service %s %s\n", after.Namespace, after.Name, after.Labels[discoveryv1.LabelServiceName], title)
	both := maps.Clone(before.Labels)
	if both == nil {
		both = map[string]string{}
	}
	maps.Copy(both, after.Labels)
	for _, label := range slices.Sorted(maps.Keys(both)) {
		oldValue, inOld := before.Labels[label]
		newValue, inNew := after.Labels[label]
		switch {
		case !inOld:
			fmt.Fprintf(out, "  + label %s %s\n", label, newValue)
		case !inNew:
			fmt.Fprintf(out, "  - label %s %s\n", label, oldValue)
		case oldValue != newValue:
			fmt.Fprintf(out, "  ~ label %s %s -> %s\n", label, oldValue, newValue)
		}
	}
	if equality.Semantic.DeepEqual(before.Endpoints, after.Endpoints) && equality.Semantic.DeepEqual(before.Ports, after.Ports) {
		fmt.Fprintf(out, "  endpoints (%d) and ports (%d) are as they were\n", len(after.Endpoints), len(after.Ports))
	} else {
		fmt.Fprintf(out, "  endpoints or ports are not as they were: something in the API server changes EndpointSlices as they are written\n")
	}
}
