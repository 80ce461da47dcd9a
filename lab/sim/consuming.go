package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/slicefeed/slicefeed/lab/sim/oracle"
	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// The Service of the world, and what its annotations begin with.
const (
	namespace = "web"
	service   = "shop"
	prefix    = "slicefeed.dev/"
)

var (
	target    = targets.Key{Namespace: namespace, Name: service}
	resource  = discoveryv1.Resource("endpointslices")
	clusterIP = netip.MustParseAddr("10.1.255.1")
)

// consuming is the consuming cluster's API server, with a Service, its slices and a Lease.
type consuming struct {
	*world

	rand    *rand.Rand
	objects *journal[runtime.Object] // the Service and the slices, by kind and name
	made    int

	holder  string    // of the Lease
	renewed time.Time // when it last was
	turns   int       // of the Lease: each of its changes

	// Faults in force.
	down, hanging, losing, conflicting int
	retryAfter                         int
	late, lag                          time.Duration
}

func newConsuming(w *world) *consuming {
	c := &consuming{world: w, rand: w.chance("consuming"), objects: newJournal[runtime.Object]()}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: service, UID: "uid-shop",
			Labels: map[string]string{targets.LabelClass: "default"}, Annotations: map[string]string{},
		},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  clusterIP.String(),
			ClusterIPs: []string{clusterIP.String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromInt32(int32(answering[0])), Protocol: corev1.ProtocolTCP},
			},
		},
	}
	var names []string
	for _, cluster := range w.clusters {
		names = append(names, cluster.name)
	}
	slices.Sort(names)
	if setup := c.script.Setup; setup.Failover && len(names) > 1 {
		svc.Annotations[prefix+"failover"] = strings.Join(names[1:], ",")
		names = names[:1]
	}
	if after := c.script.Setup.ExpireAfter; after > 0 {
		svc.Annotations[prefix+"expire-after"] = after.String()
	}
	svc.Annotations[prefix+"source"] = strings.Join(names, ",")
	if c.script.Setup.Ports {
		svc.Annotations[prefix+"ports"] = "from-source"
	}
	c.objects.put("service", svc)
	return c
}

// annotate has somebody edit the Service.
func (c *consuming) annotate(change func(*corev1.Service)) {
	svc := c.objects.now["service"].(*corev1.Service).DeepCopy()
	change(svc)
	c.tellf("the Service is edited: %v %v", svc.Labels, svc.Annotations)
	c.spread(c.objects.put("service", svc))
}

func (c *consuming) slice(name string) *discoveryv1.EndpointSlice {
	s, _ := c.objects.now["slice/"+name].(*discoveryv1.EndpointSlice)
	return s
}

// names of the slices that there are, in order.
func (c *consuming) names() (all []string) {
	for key := range c.objects.now {
		if name, is := strings.CutPrefix(key, "slice/"); is {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func (c *consuming) store(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	s.ResourceVersion = strconv.FormatUint(c.objects.rv+1, 10)
	c.spread(c.objects.put("slice/"+s.Name, s))
	return s
}

func (c *consuming) spread(e entry[runtime.Object]) {
	for _, w := range c.writers {
		if w.alive {
			w.catalog.changed(e)
		}
	}
}

// request is one of a writer for a slice, or to see whose the Lease is.
type request struct {
	w    *writer
	plan uint64
	verb string
	sent time.Time
	name string
	with *discoveryv1.EndpointSlice // nil: read

	answer  *discoveryv1.EndpointSlice
	listed  []*discoveryv1.EndpointSlice
	version uint64 // of what is listed
	err     error
}

// take carries a request to the API server and its answer back, if all goes well. The writer
// waits for no longer than its deadline; what is under way then arrives all the same.
func (c *consuming) take(r *request, done func()) {
	now, open := time.Now(), true
	answer := func() {
		if open {
			open = false
			done()
		}
	}
	r.w.at(now.Add(5*time.Second), func() {
		if open {
			r.answer, r.err = nil, context.DeadlineExceeded
			answer()
		}
	})
	arrives := now.Add(time.Millisecond + time.Duration(c.rand.IntN(8))*time.Millisecond)
	if c.hanging > 0 {
		arrives = now.Add(time.Duration(c.rand.Int64N(int64(c.late) + 1)))
	}
	// A process that is stopped has its request still in its hands, though it has looked
	// whether it leads.
	r.w.at(arrives, func() {
		if r.w.cutOff > 0 {
			return
		}
		got, err := c.serve(r)
		version := c.objects.rv
		lost := c.losing > 0 && err == nil && r.with != nil && c.rand.IntN(2) == 0
		if lost && c.rand.IntN(2) == 0 {
			return
		}
		r.w.at(time.Now().Add(time.Millisecond+time.Duration(c.rand.IntN(8))*time.Millisecond), func() {
			if !open || r.w.cutOff > 0 {
				return
			}
			if r.verb == "list" && err == nil {
				c.see(oracle.Noticed{Writer: r.w.name, Target: target.String(), Version: version})
			}
			if r.verb == "get" && (err == nil || apierrors.IsNotFound(err)) {
				c.see(oracle.Noticed{Writer: r.w.name, Target: target.String(), Slice: r.name, Version: version})
			}
			if r.answer, r.err = got, err; lost {
				r.answer, r.err = nil, errors.New("connection reset by peer")
			}
			answer()
		})
	})
}

// serve is what the API server does with a request.
func (c *consuming) serve(r *request) (*discoveryv1.EndpointSlice, error) {
	switch {
	case c.down > 0:
		return nil, apierrors.NewServiceUnavailable("down")
	case c.retryAfter > 0 && r.with != nil && c.rand.IntN(4) > 0:
		return nil, apierrors.NewTooManyRequests("later", c.retryAfter)
	}
	if r.verb == "lease" {
		if c.holder != r.w.id() {
			return nil, applier.ErrNotLeader
		}
		return nil, nil
	}
	if r.verb == "list" {
		r.version = c.objects.rv
		for _, name := range c.names() {
			if s := c.slice(name); s.Labels[discoveryv1.LabelServiceName] == target.Name {
				r.listed = append(r.listed, s.DeepCopy())
			}
		}
		return nil, nil
	}
	was := c.slice(r.name)
	if c.conflicting > 0 && was != nil && r.with != nil && c.rand.IntN(2) == 0 {
		was = was.DeepCopy()
		was.Annotations = map[string]string{"touched": strconv.FormatUint(c.objects.rv, 10)}
		was = c.store(was)
		c.tellf("somebody touches slice %s", r.name)
		c.edited(r.name, was)
	}
	switch r.verb {
	case "get":
		if was == nil {
			return nil, apierrors.NewNotFound(resource, r.name)
		}
		return was.DeepCopy(), nil
	case "create":
		if was != nil {
			return nil, apierrors.NewAlreadyExists(resource, r.name)
		}
		is := r.with.DeepCopy()
		c.made++
		is.UID = types.UID(fmt.Sprintf("uid-%s-%d", r.name, c.made))
		return c.wrote(r, nil, is), nil
	case "update":
		switch {
		case was == nil:
			return nil, apierrors.NewNotFound(resource, r.name)
		case was.ResourceVersion != r.with.ResourceVersion || was.UID != r.with.UID:
			return nil, apierrors.NewConflict(resource, r.name, errors.New("changed"))
		case equality.Semantic.DeepEqual(was, r.with): // changes nothing and wakes nobody, but it was sent
			c.told(r, was, r.with)
			return was.DeepCopy(), nil
		}
		return c.wrote(r, was, r.with), nil
	}
	switch {
	case was == nil:
		return nil, apierrors.NewNotFound(resource, r.name)
	case was.ResourceVersion != r.with.ResourceVersion || was.UID != r.with.UID:
		return nil, apierrors.NewConflict(resource, r.name, errors.New("changed"))
	}
	c.wrote(r, was, nil)
	return nil, nil
}

// wrote has a write take effect.
func (c *consuming) wrote(r *request, was, is *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	c.told(r, was, is)
	if is == nil {
		c.spread(c.objects.remove("slice/" + r.name))
		return nil
	}
	return c.store(is).DeepCopy()
}

// told has the oracle judge a write.
func (c *consuming) told(r *request, was, is *discoveryv1.EndpointSlice) {
	c.result.Writes++
	if c.trace != nil {
		c.tellf("%s %ss slice %s: %s", r.w.name, r.verb, r.name, list(is))
	}
	c.see(oracle.Wrote{
		Writer: r.w.name, Target: target.String(), Plan: r.plan, Sent: r.sent, Slice: r.name, Before: seen(was), After: seen(is),
		Version: c.objects.rv + 1,
	})
}

// tamper has somebody else alter a slice of ours; how is one of those below, the second only where there are ports.
func (c *consuming) tamper(name string, how int) {
	s := c.slice(name).DeepCopy()
	switch n := len(s.Endpoints); {
	case how%4 == 0 && n > 0: // takes one
		s.Endpoints = s.Endpoints[1:]
	case how%3 == 0 && c.script.Setup.Ports:
		s.Ports[0].Port = new(int32(silentPort))
	case how%4 == 1: // adds one
		yes, no := true, false
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.1.77.77"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
		})
	case how%4 == 2: // has all be out
		no := false
		for i := range s.Endpoints {
			s.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no}
		}
	default: // takes it from the Service
		s.Labels[discoveryv1.LabelServiceName] = "another"
	}
	c.tellf("somebody edits slice %s: %s", name, list(s))
	c.store(s)
	c.edited(name, s)
}

func (c *consuming) drop(name string) {
	c.tellf("somebody deletes slice %s", name)
	c.spread(c.objects.remove("slice/" + name))
	c.edited(name, nil)
}

// edited tells the oracle what somebody else made of a slice.
func (c *consuming) edited(name string, s *discoveryv1.EndpointSlice) {
	c.see(oracle.Edited{Target: target.String(), Slice: name, After: seen(s), Version: c.objects.rv})
}

// seen is a slice as the oracle sees it.
func seen(s *discoveryv1.EndpointSlice) *oracle.Slice {
	if s == nil {
		return nil
	}
	o := &oracle.Slice{Source: s.Labels[targets.LabelSource], Rest: fmt.Sprint(s.Labels, s.OwnerReferences, s.AddressType)}
	for _, p := range s.Ports {
		o.Port = uint16(*p.Port)
		o.Rest += " " + *p.Name
	}
	is := func(b *bool, unset bool) bool { return b == nil && unset || b != nil && *b }
	for _, e := range s.Endpoints {
		o.Endpoints = append(o.Endpoints, oracle.Endpoint{Address: netip.MustParseAddr(e.Addresses[0]), Conditions: oracle.Conditions{
			Ready: is(e.Conditions.Ready, true), Serving: is(e.Conditions.Serving, true), Terminating: is(e.Conditions.Terminating, false),
		}})
	}
	return o
}

// list is what a slice lists, for people.
func list(s *discoveryv1.EndpointSlice) string {
	if s == nil {
		return "it is no more"
	}
	var all []string
	o := seen(s)
	for _, e := range o.Endpoints {
		word := "out"
		if e.Ready {
			word = "ready"
		} else if e.Serving {
			word = "draining"
		}
		all = append(all, fmt.Sprintf("%s:%d %s", e.Address, o.Port, word))
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}
