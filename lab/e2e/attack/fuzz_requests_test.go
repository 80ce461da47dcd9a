package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// drawn is one thing that a thief tries.
type drawn struct {
	verb    string
	kinds   []string                   // what was altered
	planted *discoveryv1.EndpointSlice // has to be there before, made by somebody else
	dry     bool                       // the thief only asks what would become of it

	alter  []alteration
	seed   uint64
	number int
}

// verbs are drawn evenly. Those of patches have the policy see an update, and an apply may also make a slice.
var verbs = slices.Concat(
	slices.Repeat([]string{"create", "update"}, 9),
	slices.Repeat([]string{"json patch", "merge patch", "strategic patch", "delete"}, 4),
	slices.Repeat([]string{"apply"}, 3),
	slices.Repeat([]string{"apply of a new one", "delete of many"}, 2),
	[]string{"subresource", "in another's name"},
)

// draw draws the attempt of a number. The namespaces are drawn evenly: one that is named twice comes twice as often.
func draw(r *rand.Rand, number int, namespaces ...string) drawn {
	a := drawn{dry: r.IntN(8) == 0, seed: r.Uint64(), number: number, verb: pick(r, verbs...)}
	a.planted = plant(r, fmt.Sprintf("fuzz-%d", number), pick(r, namespaces...))
	for range pick(r, 0, 1, 1, 1, 1, 1, 1, 1, 2, 3) {
		one := pick(r, weighted...)
		a.alter, a.kinds = append(a.alter, one), append(a.kinds, one.kind)
	}
	return a
}

var weighted = func() (all []alteration) {
	for _, one := range alterations {
		all = append(all, slices.Repeat([]alteration{one}, one.weight)...)
	}
	return all
}()

// plant is a slice as one may be there already: ours, another controller's, or nobody's, and not always within what is
// allowed now.
func plant(r *rand.Rand, name, namespace string) *discoveryv1.EndpointSlice {
	o := fresh(r, namespace)
	by := slices.Concat(slices.Repeat([]string{"slicefeed-default"}, 6), slices.Repeat([]string{"endpoint-updater"}, 2),
		[]string{"somebody", "endpointslice-controller.k8s.io", ""})
	put(r, o, []string{"metadata", "labels", discoveryv1.LabelManagedBy}, pick(r, by...))
	put(r, o, []string{"metadata", "name"}, name)
	switch r.IntN(16) {
	case 0:
		put(r, o, []string{"metadata", "labels", discoveryv1.LabelManagedBy}, nil)
	case 1:
		put(r, o, []string{"metadata", "finalizers"}, []string{"example.org/theirs"})
	case 2:
		owner := object{"apiVersion": "apps/v1", "kind": "Deployment", "name": "before", "uid": "1", "blockOwnerDeletion": true}
		put(r, o, []string{"metadata", "ownerReferences"}, []object{owner})
	case 3:
		put(r, o, []string{"endpoints", "?", "addresses"}, []string{outside[o["addressType"].(string)][1]})
	case 4:
		put(r, o, []string{"ports", "?", "port"}, 6443)
	case 5:
		o["endpoints"], o["ports"] = []any{}, nil
	}
	s := &discoveryv1.EndpointSlice{}
	if err := json.Unmarshal(encode(o), s); err != nil {
		panic(err) // of what was written here
	}
	return s
}

// fresh is a slice as the writer would make it.
func fresh(r *rand.Rand, namespace string) object {
	family := pick(r, "IPv4", "IPv4", "IPv6")
	o := object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
		"metadata": object{"namespace": namespace, "labels": object{
			discoveryv1.LabelManagedBy: "slicefeed-default", discoveryv1.LabelServiceName: "shop",
		}},
		"ports": []any{object{"name": "http", "protocol": "TCP", "port": 30080}},
	}
	for range 1 + r.IntN(3) {
		put(r, o, []string{"endpoints", "-"}, object{
			"addresses": []any{pick(r, inside[family][:3]...)}, "conditions": object{"ready": true, "serving": true, "terminating": false},
		})
	}
	return o
}

// request is one to the API server, below any client library that would mend it.
type request struct {
	method, path, contentType string // the path is below /apis/discovery.k8s.io/v1
	query                     url.Values
	body                      []byte
	header                    http.Header
}

// request is what the thief asks for, with the planted slice as it is now. The same attempt makes the same request each
// time.
func (a drawn) request(planted *discoveryv1.EndpointSlice) request {
	r := rand.New(rand.NewPCG(a.seed, 1))
	all := "/namespaces/" + planted.Namespace + "/endpointslices"
	this := all + "/" + planted.Name
	altered := func(o object) object {
		for _, one := range a.alter {
			one.do(r, o)
		}
		return o
	}
	created := func() object {
		o := altered(asObject(fresh(r, planted.Namespace)))
		o["metadata"].(object)["name"] = fmt.Sprintf("fuzz-new-%d", a.number)
		return o
	}
	update := altered(asObject(planted))
	switch a.verb {
	case "create":
		return post(all, created(), r)
	case "update":
		return request{method: http.MethodPut, path: this, contentType: "application/json", body: encode(update)}
	case "json patch":
		return patch(this, "application/json-patch+json", operations(asObject(planted), update))
	case "merge patch":
		return patch(this, "application/merge-patch+json", merge(asObject(planted), update))
	case "strategic patch":
		return patch(this, "application/strategic-merge-patch+json", merge(asObject(planted), update))
	case "apply":
		return apply(this, update, r)
	case "apply of a new one":
		return apply(fmt.Sprintf("%s/fuzz-new-%d", all, a.number), created(), r)
	case "delete":
		return request{method: http.MethodDelete, path: this, contentType: "application/json", body: encode(object{
			"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": pick[any](r, nil, "Background", "Foreground", "Orphan"),
			"gracePeriodSeconds": pick[any](r, nil, 0, 3600),
		})}
	case "delete of many": // by label, by name, or without saying which
		return request{method: http.MethodDelete, path: all, query: pick(r, url.Values{},
			url.Values{"labelSelector": {discoveryv1.LabelManagedBy + "=somebody"}},
			url.Values{"fieldSelector": {"metadata.name=" + planted.Name}})}
	case "subresource":
		return request{
			method: pick(r, http.MethodPut, http.MethodPatch, http.MethodPost), contentType: "application/json", body: encode(update),
			path: this + "/" + pick(r, "status", "scale", "finalize", "eviction"),
		}
	default: // in another's name
		q := post(all, created(), r)
		q.header = http.Header{"Impersonate-User": {
			pick(r, "system:admin", "system:serviceaccount:web:twin", "system:serviceaccount:kube-system:endpointslice-controller"),
		}}
		return q
	}
}

// post sends a new slice, whose name is its own or the server's, in one of the forms that the server reads.
func post(path string, o object, r *rand.Rand) request {
	if r.IntN(4) == 0 {
		put(r, o, []string{"metadata", "generateName"}, pick(r, "fuzz-generated-", "shop-", "kubernetes-"))
		put(r, o, []string{"metadata", "name"}, pick(r, nil, nil, o["metadata"].(object)["name"]))
	}
	body := encode(o)
	q := request{method: http.MethodPost, path: path, contentType: "application/json", body: body}
	switch r.IntN(6) {
	case 0:
		if text, err := yaml.JSONToYAML(body); err == nil {
			q.contentType, q.body = "application/yaml", text
		}
	case 1: // one key twice: the last one counts, for whoever looks
		twice := `{"metadata":{"name":"fuzz-twice","labels":{"endpointslice.kubernetes.io/managed-by":"slicefeed-default"}},"endpoints":[],`
		q.body = []byte(twice + strings.TrimPrefix(string(body), "{"))
	case 2: // keys that are only nearly those
		q.body = []byte(strings.Replace(string(body), `"addresses"`, `"Addresses"`, 1))
		q.query = url.Values{"fieldValidation": {pick(r, "Ignore", "Warn", "Strict")}}
	}
	return q
}

func patch(path, contentType string, body any) request {
	return request{method: http.MethodPatch, path: path, contentType: contentType, body: encode(body)}
}

func apply(path string, o object, r *rand.Rand) request {
	for _, key := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"} {
		put(r, o, []string{"metadata", key}, nil)
	}
	if o["kind"] == nil {
		o["kind"], o["apiVersion"] = "EndpointSlice", "discovery.k8s.io/v1"
	}
	q := patch(path, "application/apply-patch+yaml", o)
	q.query = url.Values{"fieldManager": {pick(r, "thief", "slicefeed-writer")}, "force": {"true"}}
	return q
}

func asObject(v any) (o object) {
	if err := json.Unmarshal(encode(v), &o); err != nil {
		panic(err) // it has just been encoded
	}
	return o
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // of what can be encoded
	}
	return raw
}

// merge is what is different, from the top down to the members of the metadata.
func merge(from, to object) object {
	patch := object{}
	for key := range from {
		if _, ok := to[key]; !ok {
			patch[key] = nil
		}
	}
	for key, now := range to {
		below, isObject := now.(object)
		before, wasObject := from[key].(object)
		switch {
		case isObject && wasObject:
			if inner := merge(before, below); len(inner) > 0 {
				patch[key] = inner
			}
		case !bytes.Equal(encode(from[key]), encode(now)):
			patch[key] = now
		}
	}
	return patch
}

// operations say the same of each member of the object, and of its labels.
func operations(from, to object) (all []object) {
	all = []object{}
	var walk func(path string, patch, was object)
	walk = func(path string, patch, was object) {
		for _, key := range slices.Sorted(maps.Keys(patch)) {
			at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
			below, isObject := patch[key].(object)
			before, wasObject := was[key].(object)
			switch {
			case patch[key] == nil:
				all = append(all, object{"op": "remove", "path": at})
			case isObject && wasObject:
				walk(at, below, before)
			default:
				all = append(all, object{"op": "add", "path": at, "value": patch[key]})
			}
		}
	}
	walk("", merge(from, to), from)
	return all
}

// answer is what the API server said.
type answer struct {
	code    int
	message string                     // of a refusal
	slice   *discoveryv1.EndpointSlice // what has become of it, if the answer is one
}

func (a answer) ok() bool { return a.code >= 200 && a.code < 300 }

// caller makes requests with one credential.
type caller struct {
	client *http.Client
	host   string
}

// do makes the request, with dry so that it changes nothing.
func (c *caller) do(ctx context.Context, q request, dry bool) (a answer, err error) {
	query, body := url.Values{}, q.body
	maps.Copy(query, q.query)
	if dry {
		query.Set("dryRun", metav1.DryRunAll)
		if q.method == http.MethodDelete && len(body) > 0 { // it takes the place of the query
			body = bytes.Replace(body, []byte("{"), []byte(`{"dryRun":["All"],`), 1)
		}
	}
	at := c.host + "/apis/discovery.k8s.io/v1" + q.path + "?" + query.Encode()
	r, err := http.NewRequestWithContext(ctx, q.method, at, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	maps.Copy(r.Header, q.header)
	if q.contentType != "" {
		r.Header.Set("Content-Type", q.contentType)
	}
	r.Header.Set("Accept", "application/json")
	response, err := c.client.Do(r)
	if err != nil {
		return a, err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	if err != nil {
		return a, err
	}
	a = answer{code: response.StatusCode, message: string(said)}
	var kind metav1.TypeMeta
	if json.Unmarshal(said, &kind) == nil && kind.Kind == "EndpointSlice" && a.ok() {
		a.slice = &discoveryv1.EndpointSlice{}
		err = json.Unmarshal(said, a.slice)
	}
	return a, err
}
