package planner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// legacySlice is a slice of an older installation: no source, no owner, nil conditions.
func legacySlice(addrs ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "shop-nodes", UID: "found", ResourceVersion: "7",
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "shop",
				discoveryv1.LabelManagedBy:   "nodes-controller",
				"team":                       "shop",
			},
			Annotations: map[string]string{"note": "kept"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(30080))}},
	}
	for _, addr := range addrs {
		s.Endpoints = append(
			s.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{addr}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}},
		)
	}
	return s
}

func sliceNames(list []*discoveryv1.EndpointSlice) []string {
	out := []string{}
	for _, s := range list {
		out = append(out, s.Name)
	}
	return out
}

// checkCounts checks how many of each write a plan has.
func checkCounts(t *testing.T, plan Plan, create, update, remove int) {
	t.Helper()
	if len(plan.Create) != create || len(plan.Update) != update || len(plan.Delete) != remove {
		t.Fatalf("create %v, update %v, delete %v; want %d, %d, %d",
			sliceNames(plan.Create), sliceNames(plan.Update), sliceNames(plan.Delete), create, update, remove)
	}
}

func TestFirstSliceHasConfiguredNameAndLabels(t *testing.T) {
	plan := Compute(testTarget(2), nil)
	checkCounts(t, plan, 1, 0, 0)
	want := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "web", Name: "shop-nodes",
			Labels: map[string]string{
				"kubernetes.io/service-name":             "shop",
				"endpointslice.kubernetes.io/managed-by": "nodes-controller",
				labelGroup:                               "default",
				labelInstance:                            "a",
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "shop", UID: "svc-1"}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To(int32(30080))}},
		Endpoints: []discoveryv1.Endpoint{
			{
				Addresses:  []string{"10.0.0.1"},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			},
			{
				Addresses:  []string{"10.0.0.2"},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			},
		},
	}
	if diff := cmp.Diff(want, plan.Create[0]); diff != "" {
		t.Error(diff)
	}
}

func TestAdoptsLegacySliceByMetadataOnly(t *testing.T) {
	was := legacySlice("10.0.0.2", "10.0.0.1")
	plan := Compute(testTarget(2), []*discoveryv1.EndpointSlice{was})
	checkCounts(t, plan, 0, 1, 0)
	got := plan.Update[0]
	if diff := cmp.Diff(was.Endpoints, got.Endpoints); diff != "" {
		t.Error("endpoints changed", diff)
	}
	if diff := cmp.Diff(was.Ports, got.Ports); diff != "" {
		t.Error("ports changed", diff)
	}
	want := map[string]string{
		"kubernetes.io/service-name":             "shop",
		"endpointslice.kubernetes.io/managed-by": "nodes-controller",
		labelGroup:                               "default",
		labelInstance:                            "a",
	}
	if diff := cmp.Diff(want, got.Labels); diff != "" {
		t.Error(diff)
	}
	if got.Annotations["note"] != "kept" || got.ResourceVersion != "7" || len(got.OwnerReferences) != 1 {
		t.Errorf("metadata is %+v", got.ObjectMeta)
	}
	if len(was.Labels) != 3 {
		t.Error("the existing object was changed")
	}
}

func TestSkipsEquivalentSlices(t *testing.T) {
	two := testTarget(2)
	two.Ports = append(
		two.Ports,
		discoveryv1.EndpointPort{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(int32(30053))},
	)
	for name, alter := range map[string]func(*discoveryv1.EndpointSlice){
		"unchanged":            func(*discoveryv1.EndpointSlice) {},
		"other endpoint order": func(s *discoveryv1.EndpointSlice) { s.Endpoints[0], s.Endpoints[1] = s.Endpoints[1], s.Endpoints[0] },
		"other port order":     func(s *discoveryv1.EndpointSlice) { s.Ports[0], s.Ports[1] = s.Ports[1], s.Ports[0] },
		"nil conditions":       func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions = discoveryv1.EndpointConditions{} },
		"an explicit protocol": func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr.To(corev1.ProtocolTCP) },
		"an empty zone":        func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Zone = ptr.To("") },
		"foreign annotations":  func(s *discoveryv1.EndpointSlice) { s.Annotations = map[string]string{"a": "b"} },
		"an owner of another kind": func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{Kind: "Node", APIVersion: "v1", UID: "n"})
		},
		"flags of the owner reference": func(s *discoveryv1.EndpointSlice) { s.OwnerReferences[0].Controller = ptr.To(true) },
	} {
		t.Run(name, func(t *testing.T) {
			c := appliedCluster(t, two)
			alter(c.slices[0])
			checkCounts(t, Compute(two, c.slices), 0, 0, 0)
		})
	}
}

func TestRepairsDifferencesInOneWrite(t *testing.T) {
	for name, alter := range map[string]func(*discoveryv1.EndpointSlice){
		"a node name is removed":       func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].NodeName = ptr.To("local") },
		"hints are removed":            func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hints = &discoveryv1.EndpointHints{} },
		"a zone is removed":            func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Zone = ptr.To("elsewhere") },
		"a reference is removed":       func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].TargetRef = &corev1.ObjectReference{} },
		"a further address is removed": func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.0.0.1", "10.0.0.9"} },
		"a condition is repaired":      func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Terminating = ptr.To(true) },
		"an endpoint is added again":   func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[1:] },
		"an unknown endpoint is removed": func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = append(s.Endpoints, toAPI(ptr.To(readyEndpoint("10.9.9.9"))))
		},
		"a duplicate is removed":         func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, s.Endpoints[0]) },
		"an endpoint without an address": func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{}) },
		"a port is repaired":             func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr.To(int32(1)) },
		"a removed port is added again":  func(s *discoveryv1.EndpointSlice) { s.Ports = nil },
		"the source label":               func(s *discoveryv1.EndpointSlice) { delete(s.Labels, labelGroup) },
		"the writer label":               func(s *discoveryv1.EndpointSlice) { s.Labels[labelInstance] = "x" },
		"a removed owner":                func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil },
		"an earlier Service as owner":    func(s *discoveryv1.EndpointSlice) { s.OwnerReferences[0].UID = "svc-0" },
		"the service-name, by the owner": func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "other" },
		"the service-name, by the name": func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelServiceName] = ""
			s.OwnerReferences = nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := testTarget(2)
			c := appliedCluster(t, d)
			alter(c.slices[0])
			plan := Compute(d, c.slices)
			checkCounts(t, plan, 0, 1, 0)
			c.apply(t, plan, func() {})
			fresh := appliedCluster(t, d).slices[0]
			if diff := cmp.Diff(
				CurrentEndpoints(d, []*discoveryv1.EndpointSlice{fresh}),
				CurrentEndpoints(d, c.slices),
				compareAddr,
			); diff != "" {
				t.Error(diff)
			}
			if owners := c.slices[0].OwnerReferences; len(owners) != 1 || owners[0].UID != "svc-1" || owners[0].BlockOwnerDeletion != nil {
				t.Errorf("owners are %v", owners)
			}
			checkCounts(t, Compute(d, c.slices), 0, 0, 0)
		})
	}
}

func TestIgnoresForeignSlicesAndAvoidsTheirNames(t *testing.T) {
	for name, alter := range map[string]func(*discoveryv1.EndpointSlice){
		"another manager": func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "hand" },
		"no manager":      func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelManagedBy) },
		"an owned slice of another Service": func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelServiceName] = "cart"
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "cart", UID: "svc-2"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			was := legacySlice("10.0.0.1")
			alter(was)
			plan := Compute(testTarget(1), []*discoveryv1.EndpointSlice{was})
			checkCounts(t, plan, 1, 0, 0)
			if got := plan.Create[0].Name; got != "shop-nodes-2" {
				t.Errorf("named %s", got)
			}
		})
	}
	t.Run("another namespace", func(t *testing.T) {
		was := legacySlice("10.0.0.1")
		was.Namespace = "elsewhere"
		plan := Compute(testTarget(1), []*discoveryv1.EndpointSlice{was})
		checkCounts(t, plan, 1, 0, 0)
		if got := plan.Create[0].Name; got != "shop-nodes" {
			t.Errorf("named %s", got)
		}
	})
}

// It may wait for a finalizer for as long as anybody likes, and kube-proxy uses it until it is gone.
func TestSliceThatIsBeingDeletedIsReplacedAndEmptied(t *testing.T) {
	was := legacySlice("10.0.0.1", "10.0.0.2")
	was.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	all := []*discoveryv1.EndpointSlice{was}
	if got := CurrentEndpoints(testTarget(0), all); len(got) != 2 {
		t.Errorf("consumers use two endpoints, and %v count as current", got)
	}
	plan := Compute(testTarget(1), all)
	checkCounts(t, plan, 1, 1, 0)
	if got := plan.Create[0].Name; got != "shop-nodes-2" {
		t.Errorf("named %s", got)
	}
	if got := plan.Update[0]; got.Name != "shop-nodes" || len(got.Endpoints) != 0 || len(was.Endpoints) != 2 {
		t.Errorf("emptied %s, which lists %d; the cache lists %d", got.Name, len(got.Endpoints), len(was.Endpoints))
	}
	checkCounts(t, Compute(testTarget(1), []*discoveryv1.EndpointSlice{plan.Create[0], plan.Update[0]}), 0, 0, 0)

	t.Run("of a Service that is no longer managed", func(t *testing.T) {
		d := testTarget(0)
		was.Labels[labelInstance] = "a"
		plan := Withdraw(d, all)
		checkCounts(t, plan, 0, 1, 0)
		checkCounts(t, Withdraw(d, plan.Update), 0, 0, 0)
	})
	t.Run("of a rejected Service", func(t *testing.T) {
		plan := AdjustExisting(testTarget(1), all)
		checkCounts(t, plan, 0, 1, 0)
		if got := plan.Update[0].Endpoints; len(got) != 1 || got[0].Addresses[0] != "10.0.0.1" {
			t.Errorf("it lists %v", got)
		}
	})
}

func TestReplacedNodeIsOneWrite(t *testing.T) {
	d := testTarget(250)
	c := appliedCluster(t, d)
	if got := sliceNames(c.slices); !cmp.Equal(got, []string{"shop-nodes", "shop-nodes-2", "shop-nodes-3"}) {
		t.Fatalf("slices are %v", got)
	}
	d.Endpoints[120] = readyEndpoint("10.0.9.9")
	plan := Compute(d, c.slices)
	checkCounts(t, plan, 0, 1, 0)
	if plan.Update[0].Name != "shop-nodes-2" {
		t.Errorf("changed %s", plan.Update[0].Name)
	}
}

func TestNewNodeGoesIntoFullestSliceWithRoom(t *testing.T) {
	d := testTarget(250)
	c := appliedCluster(t, d)
	d.Endpoints = append(d.Endpoints[1:], readyEndpoint("10.0.9.9")) // the first slice has room
	c.apply(t, Compute(d, c.slices), func() {})
	if len(c.slices[0].Endpoints) != 100 {
		t.Errorf("the first slice has %d", len(c.slices[0].Endpoints))
	}
	d.Endpoints = append(d.Endpoints, readyEndpoint("10.0.9.10"))
	plan := Compute(d, c.slices)
	checkCounts(t, plan, 0, 1, 0)
	if plan.Update[0].Name != "shop-nodes-3" {
		t.Errorf("changed %s", plan.Update[0].Name)
	}
}

func TestSplitsOversizedSliceDestinationFirst(t *testing.T) {
	d := testTarget(250)
	d.MaxPerSlice = 1000
	c := appliedCluster(t, d)
	d.MaxPerSlice = 0
	plan := Compute(d, c.slices)
	checkCounts(t, plan, 2, 1, 0)
	before := c.visibleCounts(d)
	c.apply(t, plan, func() {
		if now := c.visibleCounts(d); len(now) != len(before) {
			t.Errorf("%d of %d are listed", len(now), len(before))
		}
	})
}

func TestMergesSlicesThatChangeAnyway(t *testing.T) {
	d := testTarget(25)
	d.MaxPerSlice = 10
	c := appliedCluster(t, d) // three slices: 10, 10, 5
	d.MaxPerSlice = 12

	for i := range d.Endpoints {
		d.Endpoints[i].Zone = "a" // each slice is written; two have no room for all endpoints
	}
	checkCounts(t, Compute(d, c.slices), 0, 3, 0)

	d.Endpoints = d.Endpoints[1:]
	checkCounts(t, Compute(d, c.slices), 0, 2, 1)

	for i := range d.Endpoints {
		d.Endpoints[i].Zone = ""
	}
	d.Endpoints, d.InstanceLabels = testTarget(25).Endpoints, instance("b") // only labels change
	d.MaxPerSlice = 100
	checkCounts(t, Compute(d, c.slices), 0, 3, 0)
}

func TestEmptiesLastSliceAndDeletesOthers(t *testing.T) {
	d := testTarget(250)
	c := appliedCluster(t, d)
	d.Endpoints = nil
	plan := Compute(d, c.slices)
	checkCounts(t, plan, 0, 1, 2)
	if plan.Update[0].Name != "shop-nodes" || len(plan.Update[0].Endpoints) != 0 {
		t.Errorf("kept %s with %d endpoints", plan.Update[0].Name, len(plan.Update[0].Endpoints))
	}
	c.apply(t, plan, func() {})
	checkCounts(t, Compute(d, c.slices), 0, 0, 0)
	checkCounts(t, Compute(testTarget(1), c.slices), 0, 1, 0)
}

func TestFamiliesAndSourcesShareNoSlices(t *testing.T) {
	d := testTarget(2)
	d.Families = append(d.Families, discoveryv1.AddressTypeIPv6)
	d.Endpoints = append(d.Endpoints, readyEndpoint("fd00::1"), readyEndpoint("10.0.0.8"), readyEndpoint("fd00::8"))
	d.Endpoints[3].Group, d.Endpoints[4].Group = "Blue_1", "Blue_1"
	c := appliedCluster(t, d)
	want := []string{"shop-nodes", "shop-nodes-blue-1", "shop-nodes-ipv6", "shop-nodes-blue-1-ipv6"}
	if diff := cmp.Diff(want, sliceNames(c.slices)); diff != "" {
		t.Fatal(diff)
	}
	if c.slices[1].Labels[labelGroup] != "Blue_1" || c.slices[2].AddressType != discoveryv1.AddressTypeIPv6 {
		t.Error("unexpected labels or families")
	}

	t.Run("slices of a removed family are deleted", func(t *testing.T) {
		d.Families = d.Families[:1]
		plan := Compute(d, c.slices)
		checkCounts(t, plan, 0, 0, 2)
	})
	t.Run("without families the plan is empty", func(t *testing.T) {
		d.Families = nil
		checkCounts(t, Compute(d, c.slices), 0, 0, 0)
	})
}

func TestRenamedSourceRelabelsSlices(t *testing.T) {
	d := testTarget(150)
	c := appliedCluster(t, d)
	for i := range d.Endpoints {
		d.Endpoints[i].Group = "blue"
	}
	checkCounts(t, Compute(d, c.slices), 0, 2, 0)
}

func TestEndpointsSwappingSourcesAreNeverAbsent(t *testing.T) {
	d := testTarget(4)
	d.Endpoints[2].Group, d.Endpoints[3].Group = "blue", "blue"
	c := appliedCluster(t, d)
	d.Endpoints[0].Group, d.Endpoints[2].Group = "blue", "default"
	plan := Compute(d, c.slices)
	c.apply(t, plan, func() {
		if now := c.visibleCounts(d); len(now) != 4 {
			t.Errorf("listed are %v", now)
		}
	})
	checkCounts(t, Compute(d, c.slices), 0, 0, 0)
}

func TestNamesStayWithinLengthLimit(t *testing.T) {
	d := testTarget(1)
	d.FirstName = strings.Repeat("a", 200) + "." + strings.Repeat("b", 51)
	d.Families = append(d.Families, discoveryv1.AddressTypeIPv6)
	d.Endpoints = append(d.Endpoints, readyEndpoint("fd00::1"), readyEndpoint("fd00::2"))
	d.MaxPerSlice = 1
	plan := Compute(d, nil)
	checkCounts(t, plan, 3, 0, 0)
	for _, s := range plan.Create {
		if len(s.Name) > 253 || strings.Contains(s.Name, ".-") {
			t.Errorf("%d characters: %s", len(s.Name), s.Name)
		}
	}
}

func TestDropsInvalidAddresses(t *testing.T) {
	d := testTarget(1)
	d.Endpoints = append(
		d.Endpoints,
		Endpoint{},
		readyEndpoint("fd00::1"),
		readyEndpoint("fe80::1%eth0"),
		readyEndpoint("10.0.0.1"),
		readyEndpoint("::ffff:10.0.0.1"),
	)
	plan := Compute(d, nil)
	checkCounts(t, plan, 1, 0, 0)
	if got := len(plan.Create[0].Endpoints); got != 1 {
		t.Errorf("%d endpoints", got)
	}
}

func TestCurrentEndpointsAppliesAPIDefaults(t *testing.T) {
	was := legacySlice("10.0.0.2", "10.0.0.1", "10.0.0.2")
	was.Endpoints[0].Conditions = discoveryv1.EndpointConditions{}
	was.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	want := []Endpoint{
		{Address: netip.MustParseAddr("10.0.0.1"), Serving: true, Terminating: true, Group: "default"},
		{Address: netip.MustParseAddr("10.0.0.2"), Ready: true, Serving: true, Group: "default"},
	}
	if diff := cmp.Diff(want, CurrentEndpoints(testTarget(0), []*discoveryv1.EndpointSlice{was}), compareAddr); diff != "" {
		t.Error(diff)
	}
}

func TestListsOnlyCanonicalAddresses(t *testing.T) {
	d := testTarget(0)
	d.Families = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	d.Endpoints = []Endpoint{{}, readyEndpoint("fd00::1%eth0"), readyEndpoint("::ffff:10.0.0.9"), readyEndpoint("fd00::2")}
	var got []string
	for _, s := range Compute(d, nil).Create {
		for _, e := range s.Endpoints {
			got = append(got, e.Addresses...)
		}
	}
	if diff := cmp.Diff([]string{"10.0.0.9", "fd00::2"}, got); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}
}

// In the other order the Service would have fewer ready endpoints between the writes.
func TestWritesReadyBeforeRemovals(t *testing.T) {
	for _, leaving := range []int{0, 1} {
		d := testTarget(2)
		d.MaxPerSlice = 1
		joining := 1 - leaving
		d.Endpoints[joining].Ready, d.Endpoints[joining].Serving = false, false
		c := appliedCluster(t, d)
		d.Endpoints[joining].Ready, d.Endpoints[joining].Serving = true, true
		d.Endpoints[leaving].Ready, d.Endpoints[leaving].Serving = false, false
		plan := Compute(d, c.slices)
		checkCounts(t, plan, 0, 2, 0)
		if got := plan.Update[0].Endpoints[0].Addresses[0]; got != d.Endpoints[joining].Address.String() {
			t.Errorf("first write is for %s, which becomes not ready", got)
		}
	}
}

func TestSlicesOfEachSourceHaveItsPorts(t *testing.T) {
	d := testTarget(0)
	d.Endpoints = append(testEndpoints("blue", 0, 2), testEndpoints("green", 2, 2)...)
	other := func(number int32) map[string][]discoveryv1.EndpointPort {
		return map[string][]discoveryv1.EndpointPort{"green": {{Name: ptr.To("http"), Port: &number}}}
	}
	for i := range d.Endpoints {
		d.Endpoints[i].PortGroup = d.Endpoints[i].Group
	}
	d.PortGroups = other(31080)
	c := appliedCluster(t, d)
	want := func(what string, numbers map[string]int32) {
		t.Helper()
		for _, slice := range c.slices {
			if got := *slice.Ports[0].Port; got != numbers[d.Group(slice)] {
				t.Errorf("%s: port %d of source %s", what, got, d.Group(slice))
			}
		}
	}
	want("at first", map[string]int32{"blue": 30080, "green": 31080})

	d.PortGroups = other(31081)
	plan := Compute(d, c.copy())
	checkCounts(t, plan, 0, 1, 0)
	c.apply(t, plan, func() {})
	want("after a change of one source", map[string]int32{"blue": 30080, "green": 31081})

	d.Endpoints[0].Group, d.Endpoints[0].PortGroup = "green", "green" // it moves to a slice with the other ports
	c.apply(t, Compute(d, c.copy()), func() {})
	want("after an endpoint has moved", map[string]int32{"blue": 30080, "green": 31081})
	if plan := Compute(d, c.copy()); !plan.Empty() {
		t.Errorf("planned again: %v", describePlan(plan))
	}
}

// portGroups returns the ports of one group, with a port of this number.
func portGroups(name string, number int32) map[string][]discoveryv1.EndpointPort {
	return map[string][]discoveryv1.EndpointPort{name: {{Name: ptr.To("http"), Port: &number}}}
}

// portNumbers returns the port of each slice, by name.
func portNumbers(list []*discoveryv1.EndpointSlice) map[string]int32 {
	out := map[string]int32{}
	for _, s := range list {
		out[s.Name] = *s.Ports[0].Port
	}
	return out
}

func TestPortGroupsShareNoSlices(t *testing.T) {
	d := testTarget(4)
	d.PortGroups = portGroups("canary", 8080)
	d.PortGroups["same"] = d.Ports
	d.Endpoints[1].PortGroup, d.Endpoints[2].PortGroup, d.Endpoints[3].PortGroup = "canary", "same", "unknown"
	c := appliedCluster(t, d)
	if diff := cmp.Diff(map[string]int32{"shop-nodes": 30080, "shop-nodes-2": 8080}, portNumbers(c.slices)); diff != "" {
		t.Fatalf("ports of slices (-want +got):\n%s", diff)
	}
	if got := len(c.slices[0].Endpoints); got != 3 {
		t.Errorf("%d endpoints have the Service's ports, want 3", got)
	}

	for _, step := range []struct {
		name                   string
		change                 func()
		create, update, remove int
		want                   map[string]int32
	}{
		{"another number is one write", func() { d.PortGroups = portGroups("canary", 8081) }, 0, 1, 0, map[string]int32{"shop-nodes": 30080, "shop-nodes-2": 8081}},
		{"groups that exchange their ports keep their slices", func() {
			d.Ports, d.PortGroups = portGroups("", 8081)[""], portGroups("canary", 30080)
		}, 0, 2, 0, map[string]int32{"shop-nodes": 8081, "shop-nodes-2": 30080}},
		{"an endpoint that changes its group is two writes", func() { d.Endpoints[0].PortGroup = "canary" }, 0, 2, 0, map[string]int32{"shop-nodes": 8081, "shop-nodes-2": 30080}},
		{"a slice whose endpoints all change their group keeps them", func() {
			for i := range d.Endpoints {
				d.Endpoints[i].PortGroup = ""
			}
		}, 0, 1, 0, map[string]int32{"shop-nodes": 8081, "shop-nodes-2": 8081}},
	} {
		step.change()
		plan := Compute(d, c.slices)
		t.Log(step.name)
		checkCounts(t, plan, step.create, step.update, step.remove)
		c.apply(t, plan, func() {
			if now := c.visibleCounts(d); len(now) != len(d.Endpoints) {
				t.Errorf("%s: listed are %v", step.name, now)
			}
		})
		if diff := cmp.Diff(step.want, portNumbers(c.slices)); diff != "" {
			t.Errorf("%s: ports of slices (-want +got):\n%s", step.name, diff)
		}
	}
}

func TestWritesHostnameAndHintsAsGiven(t *testing.T) {
	d := testTarget(2)
	d.Endpoints[0].Hostname, d.Endpoints[0].Hints = "db-0", zoneHints("a", "b")
	d.Endpoints[0].Hints.ForNodes = []discoveryv1.ForNode{{Name: "node-1"}}
	d.Endpoints[1].Hints = &discoveryv1.EndpointHints{}
	c := appliedCluster(t, d)
	first, second := c.slices[0].Endpoints[0], c.slices[0].Endpoints[1]
	if *first.Hostname != "db-0" || second.Hostname != nil || second.Hints != nil {
		t.Errorf("endpoints are %+v", c.slices[0].Endpoints)
	}
	if diff := cmp.Diff(d.Endpoints[0].Hints, first.Hints); diff != "" {
		t.Errorf("hints (-want +got):\n%s", diff)
	}
	first.Hints.ForZones[0].Name = "c"
	if d.Endpoints[0].Hints.ForZones[0].Name != "a" {
		t.Error("the slice shares the caller's hints")
	}
	first.Hints.ForZones[0].Name = "a"

	d.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: zoneHints("b", "a").ForZones, ForNodes: first.Hints.ForNodes}
	checkCounts(t, Compute(d, c.slices), 0, 0, 0)

	for name, change := range map[string]func(*Endpoint){
		"another hostname":   func(e *Endpoint) { e.Hostname = "db-1" },
		"no hostname":        func(e *Endpoint) { e.Hostname = "" },
		"hints for a zone":   func(e *Endpoint) { e.Hints = zoneHints("a", "b") },
		"hints for no nodes": func(e *Endpoint) { e.Hints = zoneHints("a") },
		"no hints":           func(e *Endpoint) { e.Hints = nil },
	} {
		t.Run(name, func(t *testing.T) {
			d := d
			d.Endpoints = slices.Clone(d.Endpoints)
			change(&d.Endpoints[0])
			plan := Compute(d, c.slices)
			checkCounts(t, plan, 0, 1, 0)
			got := CurrentEndpoints(d, plan.Update)[0]
			if got.Group = ""; !got.Equal(d.Endpoints[0]) {
				t.Errorf("written %+v, want %+v", got, d.Endpoints[0])
			}
		})
	}
}

func TestEqualEndpointsMeanTheSame(t *testing.T) {
	e := Endpoint{Address: netip.MustParseAddr("10.0.0.1"), Hostname: "db-0", Hints: zoneHints("a", "b")}
	for name, c := range map[string]struct {
		change func(*Endpoint)
		want   bool
	}{
		"the same":               {func(*Endpoint) {}, true},
		"hints in another order": {func(e *Endpoint) { e.Hints = zoneHints("b", "a") }, true},
		"fewer hints":            {func(e *Endpoint) { e.Hints = zoneHints("a") }, false},
		"no hints":               {func(e *Endpoint) { e.Hints = nil }, false},
		"another hostname":       {func(e *Endpoint) { e.Hostname = "db-1" }, false},
	} {
		other := e
		c.change(&other)
		if got := e.Equal(other); got != c.want || other.Equal(e) != got {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
