package pair

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// SourcesSubnet is where further sources' workers may be.
const SourcesSubnet = "10.1.0.0/16"

// policyName is that of the policy, of its binding, and of the other cluster-wide objects.
const policyName = "slicefeed-writer." + Namespace

// policyEdits make of the policy's lists what this world needs: the second family, further
// sources and namespaces, a TARGET_PORT, and the label of a controller from before.
var policyEdits = []struct{ from, to string }{
	{`['web']`, `['web', '` + OtherNamespace + `']`},
	{`['10.0.1.0/24']`, `['10.0.1.0/24', 'fd00:1::/64', '` + SourcesSubnet + `']`},
	{`['30000-32767']`, `['30000-32767', '8080/TCP']`},
	{`['slicefeed-default']`, `['slicefeed-default', 'endpoint-updater']`},
}

// applyPolicy puts the writers under the admission policy, which takes a second to work:
// awaitPolicy waits for it. Replacements make a further one of it, for another account.
func (p *Pair) applyPolicy(ctx context.Context, replacements ...string) error {
	raw, err := os.ReadFile(filepath.Join(p.root, "deploy", "manifests", "writer-policy.yaml"))
	if err != nil {
		return fmt.Errorf("read the admission policy: %w", err)
	}
	for _, edit := range policyEdits {
		if bytes.Count(raw, []byte(edit.from)) != 1 {
			return fmt.Errorf("edit the admission policy: it does not say %s once", edit.from)
		}
		raw = bytes.Replace(raw, []byte(edit.from), []byte(edit.to), 1)
	}
	return p.Consuming.ApplyYAML(ctx, []byte(strings.NewReplacer(replacements...).Replace(string(raw))))
}

// ExtendPolicy has the admission policy check what another account writes in a namespace as it checks the writer, for
// whoever measures both.
func (p *Pair) ExtendPolicy(ctx context.Context, user, namespace string) error {
	policies := p.consumingClient.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	policy, err := policies.Get(ctx, policyName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("extend the admission policy: %w", err)
	}
	const listed = "['" + Namespace + "', "
	account, namespaces := &policy.Spec.MatchConditions[0].Expression, &policy.Spec.Variables[0].Expression
	if !strings.Contains(*account, "== '"+WriterUser+"'") || !strings.Contains(*namespaces, listed) {
		return fmt.Errorf("extend the admission policy: it says %s and %s", *account, *namespaces)
	}
	*account = strings.Replace(*account, "== '"+WriterUser+"'", "in ['"+WriterUser+"', '"+user+"']", 1)
	*namespaces = strings.Replace(*namespaces, listed, listed+"'"+namespace+"', ", 1)
	if _, err := policies.Update(ctx, policy, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("extend the admission policy: %w", err)
	}
	return p.untilPolicy(ctx, user, namespace)
}

// awaitPolicy waits until the policy works.
func (p *Pair) awaitPolicy(ctx context.Context) error {
	return p.untilPolicy(ctx, WriterUser, Namespace)
}

// untilPolicy tries what the policy forbids, as one who may write in the namespace, until it is refused.
func (p *Pair) untilPolicy(ctx context.Context, user, namespace string) error {
	config := p.Consuming.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("wait for the admission policy: %w", err)
	}
	forbidden := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "forbidden"}, // without our label
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(string), Protocol: new(corev1.ProtocolTCP), Port: new(int32(NodePort))}},
	}
	// That a policy has begun to work is told nowhere.
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, readyWithin, true, func(ctx context.Context) (bool, error) {
		_, err := client.DiscoveryV1().EndpointSlices(namespace).
			Create(ctx, forbidden, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("wait for the admission policy: %w", err)
	}
	return nil
}
