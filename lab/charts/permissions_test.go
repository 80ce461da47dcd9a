package charts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/slicefeed/slicefeed/lab/pair"
)

// rendered are the documents of a chart.
type rendered [][]byte

// render renders a chart's release with the example's values.
func (s *stage) render(chart, release, namespace, flags string) rendered {
	s.t.Helper()
	inventory, writer := s.forLab()
	lab := map[string]string{Inventory: inventory, Writer: writer}[chart]
	out := s.run(
		fmt.Sprintf(
			"helm template --skip-tests %s deploy/%s -n %s -f deploy/%[2]s/examples/minimal.yaml --set replicas=1 %[4]s %[5]s",
			release,
			chart,
			namespace,
			lab,
			flags,
		),
	)
	var all rendered
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(out))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		s.must(err)
		all = append(all, document)
	}
}

// permission is the smallest thing that a role can allow.
type permission struct {
	role, resource, verb string // the role without its release; the resource with its group
}

func (p permission) String() string { return p.role + ": " + p.verb + " " + p.resource }

// atoms splits rules into one for each permission.
func atoms(rules []rbacv1.PolicyRule) (all []rbacv1.PolicyRule) {
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					all = append(
						all,
						rbacv1.PolicyRule{
							APIGroups:     []string{group},
							Resources:     []string{resource},
							Verbs:         []string{verb},
							ResourceNames: r.ResourceNames,
						},
					)
				}
			}
		}
	}
	return all
}

// roles calls do with the rules of each role in the documents, and has do's result in their place.
func (s *stage) roles(documents rendered, release string, do func(role string, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule) rendered {
	s.t.Helper()
	var all rendered
	for _, document := range documents {
		var role struct {
			metav1.TypeMeta   `json:",inline"`
			metav1.ObjectMeta `json:"metadata"`

			Rules []rbacv1.PolicyRule `json:"rules"`
		}
		s.must(yaml.Unmarshal(document, &role))
		if role.Kind != "Role" && role.Kind != "ClusterRole" {
			all = append(all, document)
			continue
		}
		role.Rules = do(role.Kind+strings.TrimPrefix(role.Name, release), atoms(role.Rules))
		raw, err := yaml.Marshal(map[string]any{
			"apiVersion": role.APIVersion, "kind": role.Kind, "rules": role.Rules,
			"metadata": map[string]any{"name": role.Name, "namespace": role.Namespace},
		})
		s.must(err)
		all = append(all, raw)
	}
	return all
}

func of(role string, rule rbacv1.PolicyRule) permission {
	resource := rule.Resources[0]
	if group := rule.APIGroups[0]; group != "" {
		resource += "." + group
	}
	return permission{role, resource, rule.Verbs[0]}
}

// permissions are all that the documents allow.
func (s *stage) permissions(documents rendered, release string) (all []permission) {
	s.t.Helper()
	s.roles(documents, release, func(role string, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		for _, rule := range rules {
			all = append(all, of(role, rule))
		}
		return rules
	})
	return all
}

// without are the documents without a permission.
func (s *stage) without(documents rendered, release string, taken permission) rendered {
	s.t.Helper()
	return s.roles(documents, release, func(role string, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		return slices.DeleteFunc(rules, func(rule rbacv1.PolicyRule) bool { return of(role, rule) == taken })
	})
}

// tenant is one release that lacks one permission, or none.
type tenant struct {
	t         *testing.T
	client    *kubernetes.Clientset
	namespace string
	round     int // of a deed that is done several times
	worker    *pair.Worker
}

// deed is a part of what a half is for: it is done, and then something is so.
type deed struct {
	name string // what is so, in words
	do   func(context.Context, *tenant) error
	done func(context.Context, *tenant) bool
}

// trial is a half that runs many times side by side, each time without another permission.
type trial struct {
	name               string // begins those of its namespaces
	role               string // the one whose permissions are taken; empty: all of them
	chart, side, flags string // flags with NAMESPACE where that belongs
	deeds              []deed
	needs              map[permission]string // what is not so without it
	prepare            func(context.Context, *stage, *tenant) error
}

// run installs the chart once for each permission, and once with all of them, and compares what each
// of them did not get to with what is said of it.
func (tr *trial) run(s *stage) {
	name := func(n int) string { return fmt.Sprintf("%s-%d", tr.name, n) } // of the release and its namespace
	all := s.permissions(s.render(tr.chart, name(0), name(0), tr.flagsFor(name(0))), name(0))
	all = slices.DeleteFunc(all, func(p permission) bool { return tr.role != "" && p.role != tr.role })
	broken := map[permission]string{}
	complete := make(chan struct{}) // with all permissions all has been done
	var mu sync.Mutex
	var running sync.WaitGroup
	for n := range len(all) + 1 {
		documents := s.render(tr.chart, name(n), name(n), tr.flagsFor(name(n)))
		if n > 0 {
			documents = s.without(documents, name(n), all[n-1])
		}
		running.Go(func() {
			if n == 0 {
				defer close(complete)
			}
			t := &tenant{t: s.t, client: s.Client(tr.side), namespace: name(n)}
			ctx := s.t.Context()
			if err := tr.install(ctx, s, t, documents); err != nil {
				s.t.Errorf("install number %d: %v", n, err)
				return
			}
			failed, err := tr.tryAll(ctx, t, n == 0, complete)
			if err != nil {
				s.t.Errorf("number %d: %v", n, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if n > 0 {
				broken[all[n-1]] = failed
			} else if failed != "" {
				s.t.Errorf("with all permissions it is not so that %s", failed)
			}
		})
	}
	running.Wait()
	for _, p := range slices.SortedFunc(maps.Keys(broken), func(a, b permission) int { return strings.Compare(a.String(), b.String()) }) {
		s.t.Logf("without %-55s it is not so that %s", p.String()+",", broken[p])
		if broken[p] == "" {
			s.t.Errorf("nothing breaks without %s: it is one too many", p)
		}
	}
	if diff := cmp.Diff(tr.needs, broken); diff != "" {
		s.t.Errorf("what breaks without each permission (-said +found):\n%s", diff)
	}
}

func (tr *trial) flagsFor(namespace string) string {
	return strings.ReplaceAll(tr.flags, "NAMESPACE", namespace)
}

func (tr *trial) install(ctx context.Context, s *stage, t *tenant, documents rendered) error {
	plane := s.Secured
	if tr.side == Consuming {
		plane = s.Consuming
	}
	if err := plane.ApplyYAML(ctx, []byte("{apiVersion: v1, kind: Namespace, metadata: {name: "+t.namespace+"}}")); err != nil {
		return err
	}
	if err := tr.credentials(ctx, s, t); err != nil {
		return err
	}
	if tr.prepare != nil {
		if err := tr.prepare(ctx, s, t); err != nil {
			return err
		}
	}
	return plane.ApplyYAML(ctx, bytes.Join(documents, []byte("\n---\n")))
}

// credentials are those of the script, for this namespace too.
func (tr *trial) credentials(ctx context.Context, s *stage, t *tenant) error {
	dir := filepath.Join(s.Dir(), "certificates", strings.TrimPrefix(tr.chart, "slicefeed-"))
	read := func(name string) []byte { raw, _ := os.ReadFile(filepath.Join(dir, name)); return raw }
	secrets := []*corev1.Secret{
		{
			ObjectMeta: metav1.ObjectMeta{Name: tr.chart + "-tls"},
			Type:       corev1.SecretTypeTLS,
			Data:       map[string][]byte{"tls.crt": read("tls.crt"), "tls.key": read("tls.key")},
		},
		{ObjectMeta: metav1.ObjectMeta{Name: tr.chart + "-ionos"}, StringData: map[string]string{"token": s.Cloud.Token}},
	}
	for _, secret := range secrets {
		if _, err := t.client.CoreV1().Secrets(t.namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	cloud, err := os.ReadFile(s.Cloud.CAFile)
	if err != nil {
		return err
	}
	for name, ca := range map[string][]byte{tr.chart + "-peer-ca": read("peer-ca.crt"), "ionos-ca": cloud} {
		config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"ca.crt": string(ca)}}
		if _, err := t.client.CoreV1().ConfigMaps(t.namespace).Create(ctx, config, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// grace is how much longer than the one with all permissions the others have for a deed.
const grace = 10 * time.Second

// tryAll does one deed after the other and returns the first that does not come off.
func (tr *trial) tryAll(ctx context.Context, t *tenant, all bool, complete <-chan struct{}) (string, error) {
	for _, d := range tr.deeds {
		t.round = 0
		if d.do != nil {
			if err := d.do(ctx, t); err != nil {
				return d.name, fmt.Errorf("do what shows that %s: %w", d.name, err)
			}
		}
		if !t.wait(ctx, d, all, complete) {
			return d.name, nil
		}
	}
	return "", nil
}

func (t *tenant) wait(ctx context.Context, d deed, all bool, complete <-chan struct{}) bool {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var over <-chan time.Time
	if all {
		over = time.After(patience)
	}
	for !d.done(ctx, t) {
		select {
		case <-tick.C:
		case <-complete:
			complete, over = nil, time.After(grace)
		case <-over:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// again is a deed that is done so many times, each when the one before has been noticed: a client
// whose watch is refused lists again and again, less and less often, and notices too.
func again(rounds int, name string, do func(context.Context, *tenant) error, done func(context.Context, *tenant) bool) deed {
	return deed{name: name, do: do, done: func(ctx context.Context, t *tenant) bool {
		if !done(ctx, t) {
			return false
		}
		if t.round++; t.round == rounds {
			return true
		}
		if err := do(ctx, t); err != nil {
			t.t.Errorf("%s: do again what shows that %s: %v", t.namespace, name, err)
		}
		return false
	}}
}

// podReady is the first deed of either half.
var podReady = deed{name: "its Pod becomes ready", done: func(ctx context.Context, t *tenant) bool {
	list, err := t.client.CoreV1().Pods(t.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name"})
	if err != nil || len(list.Items) != 1 {
		return false
	}
	return slices.ContainsFunc(list.Items[0].Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}}

// pause lets the half see what was done before the next thing is.
func (t *tenant) pause(ctx context.Context) {
	select { // that the half has seen it is told nowhere
	case <-time.After(500 * time.Millisecond):
	case <-ctx.Done():
	}
}

// inventoryUp installs the inventory as its users do, unless it is there.
func (s *stage) inventoryUp() {
	s.t.Helper()
	if all := s.pods(Secured); len(all) > 0 {
		return
	}
	s.must(s.Certificates(s.ctx()))
	s.must(s.TrustCloud(s.ctx()))
	s.must(s.Token(s.ctx()))
	s.run(s.helmInventory("install", "--wait", "--timeout=60s"))
	s.must(s.Balance(s.ctx()))
}

// remove takes the namespaces' Deployments away.
func (tr *trial) remove(s *stage) {
	s.t.Helper()
	ctx := context.WithoutCancel(s.t.Context())
	client := s.Client(tr.side)
	list, err := client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	s.must(err)
	for _, d := range list.Items {
		if strings.HasPrefix(d.Namespace, tr.name+"-") {
			s.must(client.AppsV1().Deployments(d.Namespace).Delete(ctx, d.Name, metav1.DeleteOptions{}))
		}
	}
}
