package attack

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// anyRight lets the writer's account and its twin do whatever there is to do with slices, anywhere:
// only the policy is then in the way of the one, and nothing in that of the other.
const anyRight = `
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: twin, namespace: web}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: any-slice}
rules:
- {apiGroups: [discovery.k8s.io], resources: [endpointslices, endpointslices/*], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: any-slice}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: any-slice}
subjects:
- {kind: ServiceAccount, name: slicefeed-writer, namespace: web}
- {kind: ServiceAccount, name: twin, namespace: web}
`

// worldsRules are what the world's policy allows, in the oracle's own words.
var worldsRules = rules{
	namespaces: []string{pair.Namespace, pair.OtherNamespace},
	managers:   []string{"slicefeed-default", "endpoint-updater"},
	cidrs: []netip.Prefix{
		netip.MustParsePrefix("10.0.1.0/24"),
		netip.MustParsePrefix("10.1.0.0/16"),
		netip.MustParsePrefix("fd00:1::/64"),
	},
	ports:    [][2]int32{{30000, 32767}},
	tcpPorts: [][2]int32{{8080, 8080}},
}

// fuzzer is a thief, its twin that the policy does not know, and who looks on.
type fuzzer struct {
	*e2e.Setup

	thief, twin *caller
	client      *kubernetes.Clientset
	tally       map[string]map[string]int // what was tried, and what came of it
}

// What came of an attempt.
const (
	passed    = "passed"
	refused   = "refused by the policy"
	malformed = "refused to everybody"
)

// Attempts with the writer's credential are drawn at random. Whether the policy has to refuse one is judged by
// what would become of the slice, which the API server itself says to the twin, and by an oracle that
// knows nothing of the policy's expressions; and then by what has become of all slices.
func TestAttackWithTheWritersOwnCredentialAtRandom(t *testing.T) {
	e2e.Long(t)
	s := e2e.New(t, e2e.Options{})
	s.Must(s.Consuming.ApplyYAML(s.Ctx(), []byte(anyRight)))
	s.Must(s.OpenNamespace(s.Ctx(), pair.OtherNamespace))
	f := &fuzzer{Setup: s, client: s.ConsumingClient(), tally: map[string]map[string]int{}}
	t.Cleanup(f.takeBack)
	kubeconfig, err := s.Consuming.ServiceAccountKubeconfig(s.Ctx(), pair.Namespace, "twin")
	s.Must(err)
	f.thief, f.twin = f.caller(s.WriterKubeconfig()), f.caller(kubeconfig)

	seed, attempts, limit := uint64(1), 1000, time.Minute
	if os.Getenv("SLICEFEED_LONG") == "1" {
		seed, attempts, limit = uint64(time.Now().UnixNano()), 5000, 15*time.Minute
	}
	if text := os.Getenv("SLICEFEED_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		s.Must(err)
	}
	attempts, err = strconv.Atoi(cmp.Or(os.Getenv("SLICEFEED_ATTEMPTS"), strconv.Itoa(attempts)))
	s.Must(err)
	random := rand.New(rand.NewPCG(seed, 0))
	namespaces := append(slices.Repeat([]string{pair.Namespace}, 6),
		pair.OtherNamespace, pair.OtherNamespace, elsewhere, metav1.NamespaceDefault, metav1.NamespaceSystem)
	s.Until("the authorizer knows the new role", func() bool {
		answer, err := f.thief.do(s.Ctx(), request{method: "GET", path: "/namespaces/kube-system/endpointslices"}, false)
		return err == nil && answer.ok()
	})
	began, made := time.Now(), 0
	for ; made < attempts && time.Since(began) < limit; made++ {
		f.try(draw(random, made, namespaces...))
	}
	t.Logf("seed %d: %d attempts in %s\n%s", seed, made, time.Since(began).Round(time.Second), f.table())
	if made < attempts/4 {
		t.Errorf("only %d of %d attempts were made in %s", made, attempts, limit)
	}
	for _, what := range []string{passed, refused, malformed} {
		if f.tally["all"][what] < max(1, made/20) {
			t.Errorf("only %d of %d attempts were %s: the fuzzer has lost its way", f.tally["all"][what], made, what)
		}
	}
}

func (f *fuzzer) caller(kubeconfig string) *caller {
	f.T.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	f.Must(err)
	client, err := rest.HTTPClientFor(config)
	f.Must(err)
	return &caller{client, config.Host}
}

// try makes one attempt and judges it.
func (f *fuzzer) try(a drawn) {
	f.T.Helper()
	planted, err := f.client.DiscoveryV1().EndpointSlices(a.planted.Namespace).Create(f.Ctx(), a.planted, metav1.CreateOptions{})
	f.Must(err)
	planted.TypeMeta = a.planted.TypeMeta
	before := f.all()
	asked := a.request(planted)
	wouldBe, err := f.twin.do(f.Ctx(), asked, true)
	f.Must(err)
	got, err := f.thief.do(f.Ctx(), asked, a.dry)
	f.Must(err)
	after := f.all()
	complain := func(format string, values ...any) {
		f.T.Helper()
		f.T.Errorf("%s\n%s %v of %s/%s\n%s %s?%s (dry: %t)\n%s\nanswer %d: %s", fmt.Sprintf(format, values...), a.verb, a.kinds,
			planted.Namespace, planted.Name, asked.method, asked.path, asked.query.Encode(), a.dry, clip(string(asked.body)), got.code,
			clip(got.message))
	}

	why := f.forbidden(a, planted, wouldBe, before)
	// 422: an expression could not be evaluated, and failurePolicy is Fail. Kubernetes 1.31 answers so to
	// an address with leading zeros ("no such overload").
	byPolicy := (got.code == 403 || got.code == 422) && strings.Contains(got.message, "ValidatingAdmissionPolicy 'slicefeed-writer.web'")
	outcome := malformed
	switch {
	case !wouldBe.ok():
		if got.ok() {
			complain("it passed, though the twin gets %d: %s", wouldBe.code, clip(wouldBe.message))
		}
	case len(why) > 0:
		outcome = refused
		if !byPolicy {
			complain("it had to be refused by the policy: %q", why)
		}
	default:
		outcome = passed
		if !got.ok() {
			complain("it is allowed, and was refused")
		}
	}
	for name, was := range before {
		now := after[name]
		if now != nil && now.ResourceVersion == was.ResourceVersion {
			continue
		}
		deleted := now == nil || now.DeletionTimestamp != nil && was.DeletionTimestamp == nil
		if deleted {
			now = nil
		}
		if why := worldsRules.forbids(was, now); len(why) > 0 || a.dry {
			complain("%s was changed or deleted: %q", name, why)
		}
	}
	for name, now := range after {
		if before[name] == nil {
			if why := worldsRules.forbids(nil, now); len(why) > 0 || a.dry {
				complain("%s was made: %q", name, why)
			}
		}
	}
	f.count(a, outcome)
	f.tidy(after)
}

// forbidden is what the oracle says of an attempt that the twin could make.
func (f *fuzzer) forbidden(
	a drawn,
	planted *discoveryv1.EndpointSlice,
	wouldBe answer,
	all map[string]*discoveryv1.EndpointSlice,
) []string {
	switch {
	case !wouldBe.ok():
		return nil
	case a.verb == "delete":
		return worldsRules.forbids(planted, nil)
	case a.verb == "delete of many":
		query := a.request(planted).query
		var why []string
		for _, one := range all {
			if one.Namespace == planted.Namespace &&
				(query.Get("fieldSelector") == "" || one.Name == planted.Name) &&
				(query.Get("labelSelector") == "" || one.Labels[discoveryv1.LabelManagedBy] == "somebody") {
				why = append(why, worldsRules.forbids(one, nil)...)
			}
		}
		return why
	case wouldBe.slice == nil:
		f.T.Fatalf("%s passed for the twin and made no slice", a.verb)
		return nil
	case wouldBe.slice.UID == planted.UID:
		return worldsRules.forbids(planted, wouldBe.slice)
	default:
		return worldsRules.forbids(nil, wouldBe.slice)
	}
}

func (f *fuzzer) all() map[string]*discoveryv1.EndpointSlice {
	f.T.Helper()
	list, err := f.client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(f.Ctx(), metav1.ListOptions{})
	f.Must(err)
	all := map[string]*discoveryv1.EndpointSlice{}
	for i, one := range list.Items {
		all[one.Namespace+"/"+one.Name] = &list.Items[i]
	}
	return all
}

// tidy takes away what is there, but for the API server's own.
func (f *fuzzer) tidy(all map[string]*discoveryv1.EndpointSlice) {
	f.T.Helper()
	for _, one := range all {
		if one.Namespace == metav1.NamespaceDefault && one.Name == "kubernetes" {
			continue
		}
		slices := f.client.DiscoveryV1().EndpointSlices(one.Namespace)
		if len(one.Finalizers) > 0 {
			_, err := slices.Patch(f.Ctx(), one.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
				metav1.PatchOptions{})
			f.Must(err)
		}
		if err := slices.Delete(f.Ctx(), one.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			f.T.Fatal(err)
		}
	}
}

func (f *fuzzer) takeBack() {
	ctx, at := context.WithoutCancel(f.T.Context()), metav1.DeleteOptions{}
	for _, err := range []error{
		f.client.RbacV1().ClusterRoleBindings().Delete(ctx, "any-slice", at),
		f.client.RbacV1().ClusterRoles().Delete(ctx, "any-slice", at),
		f.client.CoreV1().ServiceAccounts(pair.Namespace).Delete(ctx, "twin", at),
	} {
		if err != nil {
			f.T.Error(err)
		}
	}
}

func (f *fuzzer) count(a drawn, outcome string) {
	kinds := append([]string{"all", "verb: " + a.verb, "namespace: " + a.planted.Namespace}, a.kinds...)
	slices.Sort(kinds)
	for _, kind := range slices.Compact(kinds) {
		if f.tally[kind] == nil {
			f.tally[kind] = map[string]int{}
		}
		f.tally[kind][outcome]++
	}
}

func (f *fuzzer) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-30s %8s %22s %22s\n", "", passed, refused, malformed)
	for _, kind := range slices.Sorted(maps.Keys(f.tally)) {
		n := f.tally[kind]
		fmt.Fprintf(&b, "%-30s %8d %22d %22d\n", kind, n[passed], n[refused], n[malformed])
	}
	return b.String()
}

func clip(text string) string { return text[:min(len(text), 1500)] }
