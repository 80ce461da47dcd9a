// Package against measures what people would use instead of us, on the same machine and in the
// same run: Kubernetes' own EndpointSlice controller, which follows the Pods of its own cluster,
// and a controller that polls with kubectl. It promises that all are seen by the same watch and
// charged by the same accounts; it refuses to measure two at a time.
package against

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/slicefeed/slicefeed/lab/bench/report"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// extent is how much is measured.
type extent struct {
	blocks, block int // of ours and of the in-tree controller in turn, and the changes of each
	polls         int // changes that the polling controller finds, one in a poll
}

var (
	usual = extent{blocks: 5, block: 200, polls: 24}
	quick = extent{blocks: 2, block: 50, polls: 2}
)

const (
	endpoints = 4  // of each Service: three ready ones, and one that toggles
	warmUp    = 20 // changes that are not counted
)

// Run is the section of the bench.
func Run(ctx context.Context, env report.Env) ([]*report.Part, error) {
	programs, err := controlplane.Build(ctx, env.Out)
	if err != nil {
		return nil, err
	}
	manager, err := controlplane.BuildControllerManager(ctx, env.Out)
	if err != nil {
		return nil, err
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return nil, err
	}
	extent := usual
	if env.Quick {
		extent = quick
	}
	dir, err := os.MkdirTemp("", "slicefeed-against-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return nil, err
	}
	p, err := pair.Start(ctx, pair.Options{
		Programs: programs, Dir: filepath.Join(dir, "pair"),
		// The log's path is below each API server's own directory.
		APIServerArg: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + auditLog},
		Inventory:    map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet},
		Writer:       map[string]string{"SECURED_SUBNET_CIDR": pair.HerdSubnet, "HEALTH_CHECK_MODE": "off", "SHRINK_WINDOW": "0"},
	})
	if err != nil {
		return nil, err
	}
	s := &scene{Pair: p, dir: dir, kubectl: programs.Kubectl, manager: manager, requests: newRequests(p)}
	found, err := s.measure(ctx, env.Out, extent)
	return found, errors.Join(err, p.Stop())
}

// scene is what all contenders share.
type scene struct {
	*pair.Pair

	dir, kubectl, manager string
	herd                  *pair.Herd
	requests              *requests
}

func (s *scene) measure(ctx context.Context, out io.Writer, extent extent) ([]*report.Part, error) {
	var err error
	if s.herd, err = s.NewHerd(); err != nil {
		return nil, err
	}
	if err := s.herd.Grow(ctx, endpoints); err != nil {
		return nil, err
	}
	fmt.Fprintln(out, "ours and the in-tree controller, in turn")
	ours, err := s.ours(ctx)
	if err != nil {
		return nil, fmt.Errorf("ours: %w", err)
	}
	inTree, err := s.inTree(ctx)
	if err != nil {
		return nil, fmt.Errorf("the in-tree controller: %w", err)
	}
	for _, c := range []*contender{ours, inTree} {
		if err := c.warm(ctx, warmUp); err != nil {
			return nil, err
		}
	}
	for i := range extent.blocks {
		for _, c := range []*contender{ours, inTree} {
			if err := s.run(ctx, c, extent.block); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(out, "%d of %d changes of each\n", (i+1)*extent.block, extent.blocks*extent.block)
	}
	// Alone from here on: what follows must not wake them.
	if err := errors.Join(ours.stop(), inTree.stop()); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "a polling controller, %d changes\n", extent.polls)
	polling, err := s.polling(ctx)
	if err != nil {
		return nil, fmt.Errorf("the polling controller: %w", err)
	}
	err = s.run(ctx, polling, extent.polls)
	if err := errors.Join(err, polling.stop()); err != nil {
		return nil, err
	}
	return []*report.Part{part([]*contender{ours, inTree, polling})}, nil
}
