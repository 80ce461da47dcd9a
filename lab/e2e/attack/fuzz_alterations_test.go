package attack

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
)

// object is a slice as JSON, in which anything may stand.
type object = map[string]any

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// put puts a value in a place and returns what the place has then. The parts of the path are keys; "?" is any of a list,
// "-" one more of it, and "+" adds the value's keys to those that are there. Nothing (null) takes a key away.
func put(r *rand.Rand, at any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch key := path[0]; key {
	case "?", "-":
		list, _ := at.([]any)
		i := len(list)
		if key == "?" && i > 0 {
			i = r.IntN(i)
		}
		if i == len(list) {
			list = append(list, nil)
		}
		list[i] = put(r, list[i], path[1:], value)
		return list
	default:
		all, _ := at.(object)
		if all == nil {
			all = object{}
		}
		if key == "+" {
			maps.Copy(all, value.(object))
		} else if all[key] = put(r, all[key], path[1:], value); all[key] == nil {
			delete(all, key)
		}
		return all
	}
}

// The addresses on either side of the edges of what is allowed, and spellings that programs read in different ways, or not
// at all; by family.
var (
	inside = map[string][]string{
		"IPv4": strings.Split("10.0.1.0|10.0.1.1|10.0.1.77|10.0.1.255|10.1.0.0|10.1.2.3|10.1.255.255", "|"),
		"IPv6": strings.Split("fd00:1::|fd00:1::1|fd00:1::ffff:ffff:ffff:ffff|FD00:1::A|fd00:0001::0001|fd00:1:0:0:0:0:0:9|"+
			"fd00:1::10.0.1.5|fd00:1:0:0::7", "|"),
	}
	outside = map[string][]string{
		"IPv4": strings.Split("10.0.0.255|10.0.2.0|10.0.255.255|10.2.0.0|0.0.0.0|0.0.0.1|127.0.0.1|169.254.169.254|224.0.0.1|"+
			"255.255.255.255|10.0.0.12|8.8.8.8|192.0.2.1", "|"),
		"IPv6": strings.Split("fd00::ffff:ffff:ffff:ffff:ffff|fd00:1:0:1::|fd00:1:1::1|fd00:10::1|fd01::1|::|::1|fe80::1|ff02::1|"+
			"2001:db8::1|64:ff9b::a00:105", "|"),
	}
	odd = map[string][]string{
		"IPv4": strings.Split("010.0.1.5|10.0.01.5|10.0.1.005|10.00.1.5|0x0a.0.1.5|167772421|10.0.261|10.0.1|10.0.1.5 | 10.0.1.5|"+
			"10.0.1.5/32|10.0.1.0/24|10.0.1.5:30080|10.0.1.5%eth0|::ffff:10.0.1.5|::ffff:a00:105|１0.0.1.5|10.0.1.5\n|10.0.1.5\x00||"+
			"fd00:1::1|10.0.1.256|a.example", "|"),
		"IPv6": strings.Split("::ffff:10.0.1.5|::ffff:fd00:1|::10.0.1.5|fd00:1::1%eth0|fd00:1::1%25eth0|[fd00:1::1]|fd00:1::1/64|"+
			"fd00:1:::1|fd00:00001::1|fd00:1::1 |10.0.1.5|fd00-1--1.example", "|"),
	}
)

// address draws one for a family, as often one that is allowed as one that is not.
func address(r *rand.Rand, family string) string {
	if inside[family] == nil {
		family = "IPv4"
	}
	return pick(r, pick(r, inside, inside, outside, outside, odd)[family]...)
}

// alteration is one kind of thing to do to a slice: it puts one of the values, in JSON, in one of the places. "@" is any
// address. How often it is drawn depends on its weight.
type alteration struct {
	kind   string
	weight int
	places string
	values string
}

func (a alteration) do(r *rand.Rand, slice object) {
	var values []any
	if err := json.Unmarshal([]byte(a.values), &values); err != nil {
		panic(a.kind + ": " + err.Error())
	}
	value := pick(r, values...)
	family, _ := slice["addressType"].(string)
	switch v := value.(type) {
	case string:
		if v == "@" {
			value = address(r, family)
		}
	case []any:
		if len(v) == 1 && v[0] == "@" {
			value = []any{address(r, family)}
		}
	}
	put(r, slice, strings.Fields(pick(r, strings.Split(a.places, "|")...)), value)
}

// managers are values of the managed-by label, the first two of them ours.
const managers = `["slicefeed-default", "endpoint-updater", "somebody", "endpointslice-controller.k8s.io",
	"endpointslicemirroring-controller.k8s.io", "", "slicefeed-", "slicefeed-default2", "Slicefeed-default", "slicefeed-default-",
	"xslicefeed-default", "slicefeed_default", "*", "slicefeed-default,somebody", " slicefeed-default", null, null]`

func labelsOf(sizes ...int) string {
	var all []map[string]string
	for _, n := range sizes {
		labels := map[string]string{}
		for i := range n {
			labels[fmt.Sprint("l", i)] = strings.Repeat("v", 63)
		}
		all = append(all, labels)
	}
	return string(encode(all))
}

func text(length int) string { return `"` + strings.Repeat("x", length) + `"` }

func manyEndpoints(sizes ...int) string {
	var all [][]object
	for _, n := range sizes {
		var endpoints []object
		for i := range n {
			endpoints = append(endpoints, object{"addresses": []string{fmt.Sprintf("10.1.%d.%d", i/256, i%256)}})
		}
		all = append(all, endpoints)
	}
	return string(encode(all))
}

// owners are in every second case ones that the policy allows, unless they block their owner's deletion.
func owners() string {
	var all []string
	for _, of := range []string{
		"v1 Service", "v1 Service", "v1 Service", "v1 Service", "v1 Service", "v1 Service", "v1 service", "v2 Service", "core/v1 Service",
		"V1 Service", "apps/v1 Deployment", "multicluster.x-k8s.io/v1beta1 ServiceImport", "v1 Namespace", "v1 ConfigMap", " Service", "v1 ",
	} {
		version, kind, _ := strings.Cut(of, " ")
		for _, more := range []string{"", `,"controller":true`, `,"controller":false`, `,"blockOwnerDeletion":true`, `,"blockOwnerDeletion":false`} {
			all = append(all, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":"shop","uid":"1"%s}`, version, kind, more))
		}
	}
	return "[" + strings.Join(all, ",") + "]"
}

var alterations = []alteration{
	{"address", 8, "endpoints ? addresses", `[["@"]]`},
	{"further address", 3, "endpoints ? addresses -", `["@"]`},
	{"family", 4, "+", `[{"addressType":"IPv4","endpoints":[{"addresses":["10.0.1.1"]}]},
		{"addressType":"IPv6","endpoints":[{"addresses":["fd00:1::1"]}]}, {"addressType":"FQDN","endpoints":[{"addresses":["evil.example"]}]},
		{"addressType":"FQDN","endpoints":[{"addresses":["10-0-1-5.example"]}]}, {"addressType":"FQDN","endpoints":[{"addresses":["a.b"]}]},
		{"addressType":"FQDN","endpoints":[{"addresses":["10.0.1.5"]}]}, {"addressType":"FQDN","endpoints":null},
		{"addressType":"ipv4"}, {"addressType":""}]`},
	{"many endpoints", 2, "endpoints", manyEndpoints(99, 100, 101, 1000, 1001)},
	{"no endpoints", 2, "endpoints", `[null, [], [{}], [{"addresses":[]}]]`},
	{"port", 7, "ports ? port", `[null, 30000, 32767, 31999, 8080, 29999, 32768, 8079, 8081, 0, -1, 1, 65535, 65536, 22, 443, -30000]`},
	{"further port", 3, "ports -", `[{}, {"name":"more","port":30443}, {"name":"more","protocol":"UDP","port":8080},
		{"name":"more","protocol":"SCTP","port":30443}, {"name":"more","port":6443}, {"name":"","port":8080}, {"name":"Not A Name"}]`},
	{"name of a port", 1, "ports ? name", `[null, "", "http", "HTTP", "*", ` + text(64) + `]`},
	{"protocol of a port", 1, "ports ? protocol", `[null, "TCP", "UDP", "SCTP", "ICMP", ""]`},
	{"application protocol of a port", 1, "ports ? appProtocol", `["kubernetes.io/h2c", "mysql"]`},
	{"no ports", 2, "ports", `[null, []]`},
	{"managed-by", 7, "metadata labels endpointslice.kubernetes.io/managed-by", managers},
	{"Service", 2, "metadata labels kubernetes.io/service-name", `[null, "kubernetes", "shop", "somebody", ""]`},
	{"no labels", 1, "metadata labels", `[null]`},
	{"other labels", 2, "metadata labels app|metadata labels Endpointslice.kubernetes.io/managed-by|" +
		"metadata labels endpointslice.kubernetes.io/managed-by2|metadata labels kubernetes.io/managed-by|" +
		"metadata labels service.kubernetes.io/headless|metadata labels endpointslice.kubernetes.io/skip-mirror|" +
		"metadata labels slicefeed.dev/source", `["kubernetes", "shop", "slicefeed-default", "somebody", ""]`},
	{"owner", 4, "metadata ownerReferences -", owners()},
	{"owners taken away", 1, "metadata ownerReferences", `[null]`},
	{"finalizer", 2, "metadata finalizers -", `["example.org/never", "foregroundDeletion", "orphan", "kubernetes", "example.org/theirs"]`},
	{"hostname", 2, "endpoints ? hostname", `["a", "localhost", "kubernetes", "A", "a.b", "", ` + text(63) + `]`},
	{"node", 1, "endpoints ? nodeName", `[null, "node-1", "10.0.2.1", "NOT A NODE"]`},
	{"zone", 2, "endpoints ? zone", `[null, "zone-1", "", ` + text(63) + `, ` + text(64) + `, ` + text(10_000) + `]`},
	{"hints", 1, "endpoints ? hints", `[null, {"forZones":[{"name":"zone-1"}]}, {"forNodes":[{"name":"node-1"}]}]`},
	{"topology", 1, "endpoints ? deprecatedTopology", `[null, {"kubernetes.io/hostname":"node-1"}]`},
	{"target reference", 2, "endpoints ? targetRef", `[{"kind":"Pod","namespace":"kube-system","name":"x"},
		{"kind":"Secret","namespace":"web","name":"x","fieldPath":"10.0.2.1"}, {"kind":"Node","name":"x"}]`},
	{
		"conditions",
		2,
		"endpoints ? conditions",
		`[{}, {"ready":true}, {"ready":false,"serving":true,"terminating":true}, {"serving":false}]`,
	},
	{"annotations", 2, "metadata annotations", `[{"a":"x"}, {"endpointslice.kubernetes.io/managed-by":"slicefeed-default"},
		{"endpoints.kubernetes.io/last-change-trigger-time":"x"}, {"a":` + text(1000) + `}, {"a":` + text(40_000) + `}]`},
	{"many labels", 1, "metadata labels +", labelsOf(1, 20, 400)},
	{"managed fields", 2, "metadata managedFields -", managedFields(1, 1000, 40_000)},
	{"managed fields taken away", 1, "metadata managedFields", `[null]`},
	{"what only the server sets", 1, "metadata +", `[{"uid":"00000000-0000-0000-0000-000000000002"}, {"resourceVersion":"1"},
		{"deletionTimestamp":"1970-01-01T00:00:01Z"}, {"resourceVersion":"0"}, {"resourceVersion":"x"}, {"generation":1099511627776},
		{"creationTimestamp":"1970-01-01T00:00:01Z"}]`},
	{"kind or version", 1, "+", `[{"kind":"Endpoints"}, {"kind":"Service"}, {"kind":""}, {"apiVersion":"discovery.k8s.io/v1beta1"},
		{"apiVersion":"v1"}, {"apiVersion":""}]`},
	{"namespace of the body alone", 1, "metadata namespace", `["web", "default", ""]`},
}

func managedFields(sizes ...int) string {
	var all []string
	for i, n := range sizes {
		all = append(all, fmt.Sprintf(`{"manager":"somebody","operation":%q,"apiVersion":"discovery.k8s.io/v1","fieldsType":"FieldsV1",`+
			`"fieldsV1":{"f:%s":{}}}`, []string{"Update", "Apply"}[i%2], strings.Repeat("x", n)))
	}
	return "[" + strings.Join(all, ",") + "]"
}
