// Package adopt is the command that transfers another controller's EndpointSlice to the writer, which
// then keeps it in place. It guarantees that only one label changes, and only on the slice that it
// checked. It rejects slices that their controller would take back or that the writer would not
// maintain, each with a message that says what to do. It is not part of serve: it runs with a person's
// own credential, because the writer's does not have the permission.
package adopt

import (
	"context"
	"encoding/json"
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
	"github.com/slicefeed/slicefeed/services/writer/config"
)

// fieldManager is the field manager of the label change.
const fieldManager = "slicefeed-adopt"

// Config is the configuration. Settings that the writer has too have the same names, so that the
// writer's env file can be used; the writer's credential in it is not.
type Config struct {
	Kubeconfig string `flag:"kubeconfig"          placeholder:"file"            help:"your kubeconfig, or several in the syntax of kubectl; ~/.kube/config when unset"`
	Context    string `flag:"kube-context"        placeholder:"name"            help:"context of the kubeconfig; its current context when unset"`
	Class      string `flag:"class"               placeholder:"short DNS label" help:"name of the writer's installation"                                                         default:"default"`
	Namespace  string `flag:"target-namespace"    placeholder:"DNS label"       help:"namespace of the writer's named target, if it has one"                                                       required:"TARGET_SERVICE_NAME"`
	Service    string `flag:"target-service-name" placeholder:"DNS label"       help:"name of the named target"                                                                                    required:"TARGET_NAMESPACE"`
	ManagedBy  string `flag:"target-managed-by"   placeholder:"label value"     help:"value of endpointslice.kubernetes.io/managed-by on its slices; slicefeed-CLASS when unset"                                                  only:"TARGET_SERVICE_NAME"`
	DryRun     bool   `flag:"dry-run"                                           help:"try the change at the API server without persisting it"`
}

// Validate applies the writer's rules to the settings that both have.
func (c *Config) Validate() error { return config.CheckManagedBy(c.ManagedBy) }

// newClient loads the kubeconfig by the rules of client-go, as kubectl does.
func (c *Config) newClient() (kubernetes.Interface, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	switch files := filepath.SplitList(c.Kubeconfig); len(files) {
	case 0:
	case 1:
		rules.ExplicitPath = c.Kubeconfig // an error if it does not exist
	default:
		rules.Precedence = files
	}
	cluster, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if err != nil {
		return nil, "", settings.NewConfigError(
			fmt.Errorf("KUBECONFIG=%q, KUBE_CONTEXT=%q: want a kubeconfig of yours: %w", c.Kubeconfig, c.Context, err),
		)
	}
	client, err := kubernetes.NewForConfig(cluster)
	return client, cluster.Host, err
}

// NewCommand returns the command.
func NewCommand() command.StandaloneCommand {
	return command.NewStandalone(command.Subcommand[Config]{
		Use:     "adopt NAMESPACE/SLICE",
		Short:   "Transfer an EndpointSlice to the writer by changing its managed-by label, with your own kubeconfig",
		Example: "slicefeed-writer adopt web/shop-slice --dry-run",
		Failure: "the slice cannot be transferred, or the API server rejects it",
		Run: func(ctx context.Context, call command.Invocation[Config]) error {
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
		},
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
	managedBy, warnings, err := check(call.Config, slice, service)
	if err != nil {
		return fmt.Errorf("EndpointSlice %s cannot be adopted: %w", name, err)
	}
	if managedBy == slice.Labels[discoveryv1.LabelManagedBy] {
		fmt.Fprintf(call.Out, "EndpointSlice %s is managed by %q already: nothing to do\n", name, managedBy)
		return nil
	}
	for _, warning := range warnings {
		fmt.Fprintf(call.Err, "warning: %s\n", warning)
	}
	after, err := relabelSlice(ctx, client, slice, managedBy, call.Config.DryRun)
	if err != nil {
		return err
	}
	printChanges(call.Out, slice, after, call.Config.DryRun)
	return nil
}

// ownCredentialHint is for people who use the writer's credential, which has neither permission.
const ownCredentialHint = " (use a credential of your own with permission to get services and patch endpointslices; the writer's has neither)" //nolint:gosec // a text about credentials

// relabelSlice changes the label of exactly the slice that was checked: if it was modified since, the
// API server rejects the patch.
func relabelSlice(
	ctx context.Context,
	client kubernetes.Interface,
	slice *discoveryv1.EndpointSlice,
	managedBy string,
	dry bool,
) (*discoveryv1.EndpointSlice, error) {
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
		hint = " (modified since it was read; if this happens again, stop the other writer first)"
	case apierrors.IsForbidden(err):
		hint = ownCredentialHint
	}
	if err != nil {
		return nil, fmt.Errorf("relabel EndpointSlice %s/%s%s: %w", slice.Namespace, slice.Name, hint, err)
	}
	return after, nil
}

// printChanges prints the differences between the slice before and after, as the API server returned
// them.
func printChanges(out io.Writer, before, after *discoveryv1.EndpointSlice, dry bool) {
	title := "adopted"
	if dry {
		title = "would be adopted (dry run)"
	}
	fmt.Fprintf(
		out,
		"EndpointSlice %s/%s of Service %s %s\n",
		after.Namespace,
		after.Name,
		after.Labels[discoveryv1.LabelServiceName],
		title,
	)
	both := maps.Clone(after.Labels)
	maps.Copy(both, before.Labels)
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
		fmt.Fprintf(out, "  endpoints (%d) and ports (%d) unchanged\n", len(after.Endpoints), len(after.Ports))
	} else {
		fmt.Fprintf(out, "  endpoints or ports changed too: something in the API server modifies EndpointSlices on write\n")
	}
}
