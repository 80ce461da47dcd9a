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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// SourcesSubnet is where further sources' workers may be.
const SourcesSubnet = "10.1.0.0/16"

// policyEdits make of the policy's lists what this world needs: the second family, further
// sources and namespaces, a TARGET_PORT, and the label of a controller from before.
var policyEdits = []struct{ from, to string }{
	{`['web']`, `['web', '` + OtherNamespace + `']`},
	{`['10.0.1.0/24']`, `['10.0.1.0/24', 'fd00:1::/64', '` + SourcesSubnet + `']`},
	{`['30000-32767']`, `['30000-32767', '8080']`},
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

// awaitPolicy tries what the policy forbids, as the writer, until it is refused.
func (p *Pair) awaitPolicy(ctx context.Context) error {
	config := p.Consuming.AdminConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: WriterUser}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("wait for the admission policy: %w", err)
	}
	forbidden := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: Namespace, Name: "forbidden"}, // without our label
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new(string), Protocol: new(corev1.ProtocolTCP), Port: new(int32(NodePort))}},
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond) // that a policy has begun to work is told nowhere
	defer tick.Stop()
	for {
		_, err := client.DiscoveryV1().EndpointSlices(Namespace).Create(ctx, forbidden, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("wait for the admission policy: %w", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the admission policy lets everything pass: %w", context.Cause(ctx))
		}
	}
}
