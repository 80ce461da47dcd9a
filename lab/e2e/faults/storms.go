package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/ionosapi"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const (
	backends = "backends"
	theCloud = "IONOS API"
	people   = "people"
)

// diesUnsaid is a backend's death of which its Node says nothing: the probes alone find out.
var diesUnsaid = Change{Name: "a backend dies", Writes: 2, make: func(_ context.Context, s *Scene) error {
	m := s.Members(Default)[0]
	m.dead = true
	return m.Set(backend.Refuse)
}}

// ill makes backends behave in a way. Some are to be put out; if they are all there are, nobody is: the
// prober is the likelier fault.
func ill(mode backend.Mode, some func(*Scene) []*Member) Fault {
	return inSteps(func(_ context.Context, s *Scene, undo *steps) error {
		these := some(s)
		everybody := len(these) == len(s.Members(Default))+len(s.Members(Second))
		if everybody { // when one passes, those that still fail are out until they pass too
			undo.then(s.probed)
		}
		for _, m := range these {
			m.dead = !everybody
			undo.then(func(context.Context) error {
				m.dead = false
				return m.Set(backend.Serve)
			})
			if err := m.Set(mode); err != nil {
				return err
			}
		}
		return nil
	})
}

// probed waits until no probe of either writer fails.
func (s *Scene) probed(ctx context.Context) error {
	for _, writer := range s.Writers {
		if err := s.waitMetric(ctx, writer, `slicefeed_writer_probed_endpoints{health="failing"}`, equals(0)); err != nil {
			return err
		}
	}
	return nil
}

func half(s *Scene) []*Member { return s.Members(Default)[2:] }

func everyone(s *Scene) []*Member { return append(s.Members(Default), s.Members(Second)...) }

// flapping has a backend die and come back again and again.
func flapping(every time.Duration) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		m := s.Members(Default)[3]
		undo.then(func(context.Context) error { return m.Set(backend.Serve) })
		undo.ongoing(ctx, func(ctx context.Context) error {
			for _, mode := range []backend.Mode{backend.Refuse, backend.Serve} {
				if err := m.Set(mode); err != nil {
					return err
				}
				wait(ctx, every)
			}
			return nil
		})
		return nil
	})
}

// cloudIll has the cloud answer in a way, until a listing has met it, and from then on.
func cloudIll(fault ionosapi.Fault) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		if _, err := s.Cloud.AddFault(fault); err != nil {
			return err
		}
		undo.then(func(context.Context) error {
			s.Cloud.ClearFaults()
			return nil
		})
		asked := s.Cloud.Asked()
		return eventually(ctx, "the cloud is asked twice", func() bool { return s.Cloud.Asked() >= asked+2 })
	})
}

// heartbeats change every Node again and again, in what is nothing to us.
func heartbeats(every time.Duration) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		nodes, n, members := s.SecuredClient().CoreV1().Nodes(), 0, s.Members(Default)
		undo.ongoing(ctx, func(ctx context.Context) error {
			for _, m := range members {
				n++
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"storm.example.org/beat":"%d"}}}`, n)
				_, err := nodes.Patch(ctx, m.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				if err != nil && !apierrors.IsNotFound(err) { // it has left meanwhile
					return err
				}
			}
			wait(ctx, every)
			return nil
		})
		return nil
	})
}

// flips change a Node's readiness again and again, while its backend answers.
func flips(every time.Duration) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		m := s.Members(Default)[3]
		undo.then(func(ctx context.Context) error { return m.SetReady(ctx, true) })
		undo.ongoing(ctx, func(ctx context.Context) error {
			for _, ready := range []bool{false, true} {
				if err := m.SetReady(ctx, ready); err != nil {
					return err
				}
				wait(ctx, every)
			}
			return nil
		})
		return nil
	})
}

// edited has somebody else set an endpoint to not ready, again and again.
func edited(every time.Duration) Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		slices := s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace)
		no := false
		undo.ongoing(ctx, func(ctx context.Context) error {
			now := s.Now()
			if len(now) == 0 || len(now[0].Endpoints) == 0 {
				return errors.New("there is nothing to edit")
			}
			slice := now[0].DeepCopy()
			slice.ResourceVersion = ""
			slice.Endpoints[0].Conditions.Ready = &no
			_, err := slices.Update(ctx, slice, metav1.UpdateOptions{FieldManager: "somebody"})
			wait(ctx, every)
			return err
		})
		return nil
	})
}

// deleted has somebody delete our slices, once.
func deleted() Fault {
	return inSteps(func(ctx context.Context, s *Scene, _ *steps) error {
		return s.ConsumingClient().DiscoveryV1().EndpointSlices(pair.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	})
}

func stormRows() []Row {
	const (
		silent  = 6 * time.Second
		revived = 10 * time.Second // two good probes
		listed  = 15 * time.Second
	)
	servers := "/datacenters/" + pair.Datacenter + "/servers"
	return []Row{
		{Name: "half of a cluster's backends refuse", Part: backends, Fault: ill(backend.Refuse, half), Through: noticed, Within: revived, Writes: 6},
		{Name: "half of a cluster's backends fall silent", Part: backends, Fault: ill(backend.Silent, half), Through: silent, Within: revived, Writes: 6},
		{Name: "half of a cluster's backends hang", Part: backends, Fault: ill(backend.Hang, half), Through: silent, Within: revived, Writes: 6},
		{Name: "half of a cluster's backends answer 500", Part: backends, Fault: ill(backend.Error, half), Through: noticed, Within: revived, Writes: 6},
		{Name: "all backends refuse at once, and come back", Part: backends, Fault: ill(backend.Refuse, everyone), Lasts: 5 * time.Second, Within: revived, Writes: 24},
		{Name: "all backends hang at once, and come back", Part: backends, Fault: ill(backend.Hang, everyone), Lasts: 8 * time.Second, Within: revived, Writes: 24},
		{
			Name: "one backend dies and comes back every five seconds, and a node joins", Part: backends, Fault: flapping(5 * time.Second), Meanwhile: Joins,
			Lasts: 10 * time.Second, Within: revived, Writes: 8,
		},
		{
			Name: "a kubelet flips between ready and not ready twenty times a second, and a node joins", Part: securedAPI, Fault: flips(25 * time.Millisecond), Meanwhile: Joins,
			Through: follow, Within: follow,
		},
		{
			Name: "each Node changes a hundred times a second in what is nothing to us, and two nodes are replaced", Part: securedAPI, Fault: heartbeats(5 * time.Millisecond), Meanwhile: Rolls,
			Through: follow + 2*time.Second, Within: follow, Writes: 2,
		},
		{
			Name: "the cloud answers 429 with Retry-After: 3 to everything, and a node joins", Part: theCloud,
			Fault: cloudIll(ionosapi.Fault{Kind: ionosapi.TooManyRequestsSeconds, Wait: ionosapi.Duration(3 * time.Second)}), Meanwhile: Joins, Within: listed,
		},
		{
			Name: "the cloud answers 503 to everything, and two nodes are replaced", Part: theCloud, Fault: cloudIll(ionosapi.Fault{Kind: ionosapi.Unavailable}), Meanwhile: Rolls,
			Within: listed, Writes: 4,
		},
		{Name: "the cloud hangs, and a node dies", Part: theCloud, Fault: cloudIll(ionosapi.Fault{Kind: ionosapi.Hang}), Meanwhile: Dies, Through: noticed, Within: 40 * time.Second},
		{
			Name: "the cloud lists no servers, in due form, and a Node is deleted", Part: theCloud, Fault: cloudIll(ionosapi.Fault{Kind: ionosapi.EmptyList, Path: servers}), Meanwhile: Leaves,
			Through: follow, Within: listed,
		},
		{
			Name: "the cloud gives every server the address of one, and a node joins", Part: theCloud, Fault: cloudIll(ionosapi.Fault{Kind: ionosapi.HiddenSharing, Address: "10.0.1.250", Path: servers}),
			Meanwhile: Joins, Through: listed, Within: listed,
		},
		{
			Name: "somebody sets an endpoint to not ready four times a second", Part: people, Fault: edited(250 * time.Millisecond), Lasts: 3 * time.Second, Within: 20 * time.Second,
			Writes: 12,
		},
		{
			Name: "somebody deletes our slices, and a node joins", Part: people, Fault: deleted(), Meanwhile: Joins, Through: follow, Within: follow, Writes: 2,
			Explain: "until the slice is made anew, some milliseconds later, there is none",
		},
	}
}
