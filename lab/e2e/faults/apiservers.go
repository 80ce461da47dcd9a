package faults

import (
	"context"
	"net/http"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/pair"
)

const (
	securedAPI   = "secured API server"
	consumingAPI = "consuming API server"
)

// cluster is one of the two.
type cluster func(*Scene) *controlplane.ControlPlane

func secured(s *Scene) *controlplane.ControlPlane   { return s.Secured }
func consuming(s *Scene) *controlplane.ControlPlane { return s.Consuming }

// apiDown kills the API server; the lift starts it again.
func apiDown(of cluster) Fault {
	return inSteps(func(_ context.Context, s *Scene, undo *steps) error {
		undo.then(of(s).StartAPIServer)
		return of(s).StopAPIServer()
	})
}

// etcdDown kills etcd; the API server goes on without it.
func etcdDown(of cluster) Fault {
	return inSteps(func(_ context.Context, s *Scene, undo *steps) error {
		undo.then(of(s).StartEtcd)
		return of(s).StopEtcd()
	})
}

// programFrozen stops one of a control plane's processes, its connections open.
func programFrozen(of cluster, program controlplane.Program) Fault {
	return inSteps(func(_ context.Context, s *Scene, undo *steps) error {
		undo.then(func(context.Context) error { return of(s).Signal(program, syscall.SIGCONT) })
		return of(s).Signal(program, syscall.SIGSTOP)
	})
}

// compacted has our watches cut off while etcd forgets what they would have to go on from, and the
// API server loses its cache: they are told 410 Gone.
func compacted(of cluster, edges where) Fault {
	return func(ctx context.Context, s *Scene) (func(context.Context) error, error) {
		back, err := down(edges)(ctx, s)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			if err := of(s).Compact(ctx); err != nil {
				return err
			}
			if err := of(s).StopAPIServer(); err != nil {
				return err
			}
			if err := of(s).StartAPIServer(ctx); err != nil {
				return err
			}
			return back(ctx)
		}, nil
	}
}

// forbidden takes the permission to update slices from the writers.
func forbidden() Fault {
	return inSteps(func(ctx context.Context, s *Scene, undo *steps) error {
		bindings := s.ConsumingClient().RbacV1().RoleBindings(pair.Namespace)
		all, err := bindings.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, binding := range all.Items {
			if binding.Name == "slicefeed-writer-lease" {
				continue
			}
			if err := bindings.Delete(ctx, binding.Name, metav1.DeleteOptions{}); err != nil {
				return err
			}
			undo.then(func(ctx context.Context) error {
				binding.ResourceVersion, binding.UID = "", ""
				_, err := bindings.Create(ctx, &binding, metav1.CreateOptions{})
				return err
			})
		}
		return nil
	})
}

func apiServerRows() []Row {
	const (
		relisted = 40 * time.Second // client-go waits up to half a minute between attempts
		written  = 15 * time.Second // a writer, between two attempts
		led      = takeover + written
	)
	bothStores := of(stores, both)
	return []Row{
		{Name: "the secured API server is killed and started again", Part: securedAPI, Fault: apiDown(secured), Within: follow},
		{
			Name: "the secured API server is frozen for five seconds, and a backend dies", Part: securedAPI, Fault: programFrozen(secured, controlplane.APIServer), Meanwhile: diesUnsaid,
			Lasts: 5 * time.Second, Through: noticed, Within: written,
		},
		{Name: "the secured API server is killed and started again, and a backend dies", Part: securedAPI, Fault: apiDown(secured), Meanwhile: diesUnsaid, Through: noticed, Within: relisted},
		{
			Name: "the secured etcd is frozen, and a backend dies", Part: securedAPI, Fault: programFrozen(secured, controlplane.Etcd), Meanwhile: diesUnsaid,
			Lasts: 8 * time.Second, Through: noticed, Within: written,
		},
		{Name: "the secured etcd is killed and started again", Part: securedAPI, Fault: etcdDown(secured), Lasts: 4 * time.Second, Within: follow},
		{
			Name: "the secured etcd is compacted behind the watch (410 Gone), and two nodes are replaced", Part: securedAPI, Fault: compacted(secured, atSecured), Meanwhile: Rolls,
			Within: relisted, Writes: 2,
		},
		{Name: "the consuming API server is killed and started again, and a node joins", Part: consumingAPI, Fault: apiDown(consuming), Meanwhile: Joins, Within: led, Blind: true, Recovers: led},
		{Name: "the consuming API server is killed and started again, and a node dies", Part: consumingAPI, Fault: apiDown(consuming), Meanwhile: Dies, Within: led, Blind: true, Recovers: led},
		{
			Name: "the consuming API server is frozen for five seconds, and a node joins", Part: consumingAPI, Fault: programFrozen(consuming, controlplane.APIServer), Meanwhile: Joins,
			Lasts: 5 * time.Second, Within: written, Blind: true, Recovers: written,
		},
		{
			Name: "the consuming API server is frozen beyond the Lease, and a Node is deleted", Part: consumingAPI, Fault: programFrozen(consuming, controlplane.APIServer), Meanwhile: Leaves,
			Lasts: 14 * time.Second, Within: led, Blind: true, Recovers: led,
		},
		{
			Name: "the consuming etcd is frozen, and two nodes are replaced", Part: consumingAPI, Fault: programFrozen(consuming, controlplane.Etcd), Meanwhile: Rolls,
			Within: led, Writes: 2, Blind: true, Recovers: led,
		},
		{Name: "the consuming etcd is killed and started again, and a node joins", Part: consumingAPI, Fault: etcdDown(consuming), Meanwhile: Joins, Lasts: 4 * time.Second, Within: led, Blind: true, Recovers: led},
		{
			Name: "the consuming etcd is compacted behind the watches (410 Gone), and two nodes are replaced", Part: consumingAPI, Fault: compacted(consuming, bothStores), Meanwhile: Rolls,
			Within: relisted, Writes: 2, Blind: true, Recovers: relisted,
		},
		{
			Name: "the consuming API server answers 500 to each write of a slice (a webhook that nobody answers for), and two nodes are replaced", Part: consumingAPI, Fault: webhookDown(), Meanwhile: Rolls,
			Within: written, Writes: 2, Blind: true, Recovers: written,
		},
		{
			Name: "the consuming API server answers 429 with Retry-After: 2 to each write of a slice, and a node joins", Part: consumingAPI,
			Fault: webhookAnswers(http.StatusTooManyRequests, 2), Meanwhile: Joins, Lasts: 5 * time.Second, Within: written, Blind: true, Recovers: written,
		},
		{
			Name: "the consuming API server answers 429 with Retry-After: 2 to each write of a slice and of the Lease, and a node drains", Part: consumingAPI,
			Fault: webhookAnswers(http.StatusTooManyRequests, 2, leases), Meanwhile: Drains, Lasts: 14 * time.Second, Within: led, Blind: true, Recovers: led,
		},
		{
			Name: "the consuming API server answers 503 to each write of a slice, and two nodes are replaced", Part: consumingAPI,
			Fault: webhookAnswers(http.StatusServiceUnavailable, 0), Meanwhile: Rolls, Within: written, Writes: 2, Blind: true, Recovers: written,
		},
		{
			Name: "the permission to write slices is taken away, and a node dies", Part: consumingAPI, Fault: forbidden(), Meanwhile: Dies,
			Lasts: 4 * time.Second, Within: relisted, Blind: true, Recovers: relisted,
		},
	}
}
