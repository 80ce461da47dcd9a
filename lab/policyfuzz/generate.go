package policyfuzz

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Attempt is one thing that a thief tries.
type Attempt struct {
	Verb    string
	Kinds   []string                   // what was altered
	Planted *discoveryv1.EndpointSlice // has to be there before, made by somebody else
	Dry     bool                       // the thief only asks what would become of it

	alter  []alteration
	seed   uint64
	number int
}

// Generator draws attempts.
type Generator struct {
	random     *rand.Rand
	number     int
	namespaces []string
}

// New makes the generator of a seed. The namespaces are drawn from evenly: name one twice to have it
// twice as often.
func New(seed uint64, namespaces ...string) *Generator {
	return &Generator{random: rand.New(rand.NewPCG(seed, 0)), namespaces: namespaces}
}

// The verbs. Those of patches have the policy see an update, and an apply may also make a slice.
var verbs = []struct {
	name   string
	weight int
}{
	{"create", 9},
	{"update", 9},
	{"json patch", 4},
	{"merge patch", 4},
	{"strategic patch", 4},
	{"apply", 3},
	{"apply of a new one", 2},
	{"delete", 4},
	{"delete of many", 2},
	{"subresource", 1},
	{"in another's name", 1},
}

// Next draws an attempt.
func (g *Generator) Next() Attempt {
	g.number++
	r := g.random
	a := Attempt{Dry: r.IntN(8) == 0, seed: r.Uint64(), number: g.number}
	a.Verb = drawn(r, len(verbs), func(i int) int { return verbs[i].weight }, func(i int) string { return verbs[i].name })
	a.Planted = plant(r, fmt.Sprintf("fuzz-%d", g.number), pick(r, g.namespaces...))
	for range pick(r, 0, 1, 1, 1, 1, 1, 1, 1, 2, 3) {
		one := drawn(
			r,
			len(alterations),
			func(i int) int { return alterations[i].weight },
			func(i int) alteration { return alterations[i] },
		)
		a.alter, a.Kinds = append(a.alter, one), append(a.Kinds, one.kind)
	}
	return a
}

func drawn[T any](r *rand.Rand, n int, weight func(int) int, of func(int) T) T {
	total := 0
	for i := range n {
		total += weight(i)
	}
	at := r.IntN(total)
	i := 0
	for ; at >= weight(i); i++ {
		at -= weight(i)
	}
	return of(i)
}

// plant is a slice as one may be there already: ours, another controller's, or nobody's, and not
// always within what is allowed now.
func plant(r *rand.Rand, name, namespace string) *discoveryv1.EndpointSlice {
	s := fresh(r, namespace)
	s.Name = name
	label(
		s,
		discoveryv1.LabelManagedBy,
		pick(
			r,
			managers[0],
			managers[0],
			managers[0],
			managers[0],
			managers[0],
			managers[0],
			managers[1],
			managers[1],
			"somebody",
			"endpointslice-controller.k8s.io",
			"",
		),
	)
	switch r.IntN(16) {
	case 0:
		delete(s.Labels, discoveryv1.LabelManagedBy)
	case 1:
		s.Finalizers = []string{"example.org/theirs"}
	case 2:
		s.OwnerReferences = []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "Deployment", Name: "before", UID: "1", BlockOwnerDeletion: new(true)},
		}
	case 3:
		s.Endpoints[0].Addresses[0] = map[discoveryv1.AddressType]string{discoveryv1.AddressTypeIPv4: outside4[1], discoveryv1.AddressTypeIPv6: outside6[1]}[s.AddressType]
	case 4:
		s.Ports[0].Port = new(int32(6443))
	case 5:
		s.Endpoints, s.Ports = nil, nil
	}
	return s
}

// fresh is a slice as the writer would make it.
func fresh(r *rand.Rand, namespace string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Labels: map[string]string{
			discoveryv1.LabelManagedBy: managers[0], discoveryv1.LabelServiceName: "shop",
		}},
		AddressType: pick(r, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6),
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(30080))}},
	}
	for range 1 + r.IntN(3) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{
				pick(r, map[bool][]string{true: inside6[:3], false: inside4}[s.AddressType == discoveryv1.AddressTypeIPv6]...),
			},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		})
	}
	return s
}

// Request is what the thief asks for, with the planted slice as it is now. The same attempt makes the
// same request each time.
func (a Attempt) Request(planted *discoveryv1.EndpointSlice) Request {
	r := rand.New(rand.NewPCG(a.seed, 1))
	namespace := planted.Namespace
	all := "/namespaces/" + namespace + "/endpointslices"
	this := all + "/" + planted.Name
	altered := func(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
		s = s.DeepCopy()
		for _, one := range a.alter {
			one.do(r, s)
		}
		return s
	}
	update := altered(planted)
	switch a.Verb {
	case "create":
		return post(all, a.named(r, altered(fresh(r, namespace))), r)
	case "update":
		return Request{Method: http.MethodPut, Path: this, ContentType: "application/json", Body: encode(update)}
	case "json patch":
		return Request{Method: http.MethodPatch, Path: this, ContentType: "application/json-patch+json", Body: jsonPatch(planted, update)}
	case "merge patch":
		return Request{Method: http.MethodPatch, Path: this, ContentType: "application/merge-patch+json", Body: mergePatch(planted, update)}
	case "strategic patch":
		return Request{
			Method:      http.MethodPatch,
			Path:        this,
			ContentType: "application/strategic-merge-patch+json",
			Body:        mergePatch(planted, update),
		}
	case "apply":
		return apply(this, update, r)
	case "apply of a new one":
		s := altered(fresh(r, namespace))
		s.Name = fmt.Sprintf("fuzz-new-%d", a.number)
		return apply(all+"/"+s.Name, s, r)
	case "delete":
		return Request{Method: http.MethodDelete, Path: this, ContentType: "application/json", Body: deletion(r)}
	case "delete of many":
		// By label, by name, or without saying which.
		query := pick(
			r,
			url.Values{},
			url.Values{"labelSelector": {discoveryv1.LabelManagedBy + "=somebody"}},
			url.Values{"fieldSelector": {"metadata.name=" + planted.Name}},
		)
		return Request{Method: http.MethodDelete, Path: all, Query: query}
	case "subresource":
		method := pick(r, http.MethodPut, http.MethodPatch, http.MethodPost)
		return Request{
			Method:      method,
			Path:        this + "/" + pick(r, "status", "scale", "finalize", "eviction"),
			ContentType: "application/json",
			Body:        encode(update),
		}
	default: // in another's name
		request := post(all, a.named(r, altered(fresh(r, namespace))), r)
		request.Header = http.Header{
			"Impersonate-User": {
				pick(r, "system:admin", "system:serviceaccount:web:twin", "system:serviceaccount:kube-system:endpointslice-controller"),
			},
		}
		return request
	}
}

// named gives a new slice its name, or has the server find one.
func (a Attempt) named(r *rand.Rand, s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	switch r.IntN(4) {
	case 0:
		s.GenerateName = pick(r, "fuzz-generated-", "shop-", "kubernetes-")
	case 1:
		s.Name, s.GenerateName = fmt.Sprintf("fuzz-new-%d", a.number), "ignored-"
	default:
		s.Name = fmt.Sprintf("fuzz-new-%d", a.number)
	}
	return s
}

// post sends a slice in one of the forms that the server reads.
func post(path string, s *discoveryv1.EndpointSlice, r *rand.Rand) Request {
	body := encode(s)
	request := Request{Method: http.MethodPost, Path: path, ContentType: "application/json", Body: body}
	switch r.IntN(6) {
	case 0:
		if text, err := yaml.JSONToYAML(body); err == nil {
			request.ContentType, request.Body = "application/yaml", text
		}
	case 1: // one key twice: the last one counts, for whoever looks
		twice := `{"metadata":{"name":"fuzz-twice","labels":{"endpointslice.kubernetes.io/managed-by":"slicefeed-default"}},"endpoints":[],`
		request.Body = []byte(twice + strings.TrimPrefix(string(body), "{"))
	case 2: // keys that are only nearly those
		request.Body = []byte(strings.Replace(string(body), `"addresses"`, `"Addresses"`, 1))
		request.Query = url.Values{"fieldValidation": {pick(r, "Ignore", "Warn", "Strict")}}
	}
	return request
}

func apply(path string, s *discoveryv1.EndpointSlice, r *rand.Rand) Request {
	s = s.DeepCopy()
	s.ManagedFields, s.ResourceVersion, s.UID, s.CreationTimestamp, s.Generation = nil, "", "", metav1.Time{}, 0
	if s.Kind == "" {
		s.Kind, s.APIVersion = "EndpointSlice", "discovery.k8s.io/v1"
	}
	return Request{
		Method: http.MethodPatch, Path: path, ContentType: "application/apply-patch+yaml", Body: encode(s),
		Query: url.Values{"fieldManager": {pick(r, "thief", "slicefeed-writer")}, "force": {"true"}},
	}
}

func deletion(r *rand.Rand) []byte {
	o := metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	o.PropagationPolicy = pick(
		r,
		nil,
		new(metav1.DeletePropagationBackground),
		new(metav1.DeletePropagationForeground),
		new(metav1.DeletePropagationOrphan),
	)
	o.GracePeriodSeconds = pick(r, nil, new(int64(0)), new(int64(3600)))
	return encode(o)
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // of types of the API, which can be encoded
	}
	return raw
}

// asMap is the object as a patch sees it.
func asMap(s *discoveryv1.EndpointSlice) map[string]any {
	var m map[string]any
	if err := json.Unmarshal(encode(s), &m); err != nil {
		panic(err) // it has just been encoded
	}
	return m
}

// mergePatch says what is different, from the top down to the members of the metadata.
func mergePatch(from, to *discoveryv1.EndpointSlice) []byte {
	return encode(merge(asMap(from), asMap(to)))
}

func merge(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for key := range from {
		if _, ok := to[key]; !ok {
			patch[key] = nil
		}
	}
	for key, now := range to {
		was, ok := from[key]
		below, isMap := now.(map[string]any)
		before, wasMap := was.(map[string]any)
		switch {
		case ok && isMap && wasMap:
			if inner := merge(before, below); len(inner) > 0 {
				patch[key] = inner
			}
		case !ok || string(encode(was)) != string(encode(now)):
			patch[key] = now
		}
	}
	return patch
}

// jsonPatch says the same in operations on the members of the object and of its labels.
func jsonPatch(from, to *discoveryv1.EndpointSlice) []byte {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value,omitempty"`
	}
	ops := []operation{}
	var walk func(path string, patch, was map[string]any)
	walk = func(path string, patch, was map[string]any) {
		for _, key := range slices.Sorted(maps.Keys(patch)) {
			value := patch[key]
			at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			below, isMap := value.(map[string]any)
			before, wasMap := was[key].(map[string]any)
			switch {
			case value == nil:
				ops = append(ops, operation{Op: "remove", Path: at})
			case isMap && wasMap:
				walk(at, below, before)
			default:
				ops = append(ops, operation{"add", at, value})
			}
		}
	}
	walk("", merge(asMap(from), asMap(to)), asMap(from))
	return encode(ops)
}
