// Package rest measures what both components take while nothing happens: requests, writes, time on a core, memory.
// Nodes have their real size and kubelets send heartbeats. Requests are counted where they arrive, at the API servers and
// the cloud. Nothing is requested of the components while they are observed.
package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// stage is a pair with workers, as one row of the table has it.
type stage struct {
	workers       int
	probing       bool
	settle, watch time.Duration
}

// A stage is watched for a little more than a minute, in which the cloud is read once.
var (
	stages = []stage{
		{workers: few, settle: 25 * time.Second, watch: 62 * time.Second},
		{workers: few, probing: true, settle: 5 * time.Second, watch: 20 * time.Second},
		{workers: many, settle: 25 * time.Second, watch: 62 * time.Second},
	}
	quick = []stage{{workers: few, settle: 3 * time.Second, watch: 8 * time.Second}}
)

const (
	few  = 100
	many = 5000
)

// row is what was seen of a stage.
type row struct {
	stage

	inventory, writer taken
	cloud             listings
	took              time.Duration
	decoding          float64 // of a core: what decoding the heartbeats alone takes, by the API's own types
	weight            int     // bytes of a Node
}

// Run is the section of the bench.
func Run(ctx context.Context, env report.Env) ([]*report.Part, error) {
	programs, err := controlplane.Build(ctx, env.Out)
	if err != nil {
		return nil, err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "slicefeed-rest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	played := stages
	if env.Quick {
		played = quick
	}
	rows, err := measure(ctx, env.Out, programs, dir, played)
	if err != nil {
		return nil, err
	}
	return []*report.Part{part(rows)}, nil
}

func measure(ctx context.Context, out io.Writer, programs controlplane.Programs, dir string, stages []stage) ([]row, error) {
	policy := filepath.Join(dir, "requests.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	p, err := pair.Start(ctx, pair.Options{
		Programs: programs, Dir: dir,
		// Relative: each API server runs in a directory of its own. They take the place of the pair's own.
		APIServerArg: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog},
		Inventory:    map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet},
		Writer:       map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet},
	})
	if err != nil {
		return nil, err
	}
	rows, err := each(ctx, out, p, stages)
	return rows, errors.Join(err, p.Stop())
}

func each(ctx context.Context, out io.Writer, p *pair.Pair, stages []stage) (rows []row, err error) {
	if err := netns.AddLocal(netip.MustParsePrefix(pair.HerdSubnet)); err != nil {
		return nil, err
	}
	answering, err := backend.Start("all workers", netip.AddrPortFrom(netip.IPv4Unspecified(), pair.NodePort))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, answering.Close()) }()
	herd, err := p.NewHerd()
	if err != nil {
		return nil, err
	}
	for _, s := range stages {
		if err := herd.Grow(ctx, s.workers); err != nil {
			return nil, err
		}
		r := row{stage: s}
		if err := r.play(ctx, out, p, herd); err != nil {
			return nil, fmt.Errorf("at rest with %d Nodes: %w", s.workers, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// play starts the halves, lets them come to rest, watches them, and ends them.
func (r *row) play(ctx context.Context, out io.Writer, p *pair.Pair, herd *pair.Herd) (err error) {
	mode := "off"
	if r.probing {
		mode = "" // as it is by default
	}
	p.Writers[0].Set("HEALTH_CHECK_MODE", mode)
	if err := p.StartHalves(ctx); err != nil {
		return err
	}
	defer func() {
		const grace = 20 * time.Second
		err = errors.Join(err, p.Writers[0].Terminate(grace), p.Inventory.Terminate(grace))
	}()
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if _, err := p.WaitSlices(waiting, func(all []*discoveryv1.EndpointSlice) bool { return ready(all) == r.workers }); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d endpoints are ready; letting the components come to rest\n", r.workers)

	living, end := context.WithCancel(ctx)
	hearts, living := errgroup.WithContext(living)
	defer func() { end(); err = errors.Join(err, hearts.Wait()) }()
	hearts.Go(func() error { return sendHeartbeats(living, herd.Nodes()) })
	select {
	case <-time.After(r.settle):
	case <-living.Done():
		return living.Err()
	}
	fmt.Fprintf(out, "watching them for %v\n", r.watch)
	from := time.Now()
	all, err := observe(living, []*pair.Half{p.Inventory, p.Writers[0]}, r.watch)
	if err != nil {
		return err
	}
	to := time.Now()
	r.took, r.inventory, r.writer = to.Sub(from), all[0], all[1]
	r.cloud = cloudRequests(p.Cloud.Requests(), from, to)
	if r.inventory.asked, err = requests(filepath.Join(p.Secured.Dir(), auditLog), from, to); err != nil {
		return err
	}
	if r.writer.asked, err = requests(filepath.Join(p.Consuming.Dir(), auditLog), from, to); err != nil {
		return err
	}
	r.decoding, r.weight, err = decoding(ctx, p, herd.Nodes())
	return err
}

func ready(all []*discoveryv1.EndpointSlice) (n int) {
	for _, slice := range all {
		for i := range slice.Endpoints {
			if is := slice.Endpoints[i].Conditions.Ready; is != nil && *is {
				n++
			}
		}
	}
	return n
}
