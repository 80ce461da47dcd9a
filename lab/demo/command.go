// Package demo tells the main job as a story: on real control planes, with both halves
// as real processes and a client that sends requests all along. It promises that every
// sentence that claims something has been checked, and ends with an error where one did
// not come true; it refuses to tell of what is not built.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/netns"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/session"
)

// Command returns the subcommand of lab.
func Command() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the main job step by step, on real control planes, in 90 seconds",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd.Context(), cmd.OutOrStdout(), keep)
		},
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "keep everything running afterwards, and print how to inspect it")
	return cmd
}

func run(ctx context.Context, out io.Writer, keep bool) error {
	root, err := pair.Root()
	if err != nil {
		return err
	}
	bin := filepath.Join(root, ".bin")
	programs, err := controlplane.Build(ctx, out)
	if err != nil {
		return err
	}
	if !netns.Inside() { // what is missing may have to be downloaded
		if err := buildMissing(ctx, out, root, bin); err != nil {
			return err
		}
	}
	if err := netns.Enter(ctx, pair.Addresses()...); err != nil {
		return err
	}
	return tell(ctx, out, pair.Options{
		Programs: programs, Bin: bin, Writers: 2,
		Cloud:     pair.CloudOptions{OtherServers: otherServers, PageLimit: pageLimit},
		Inventory: inventorySettings(), Writer: writerSettings(),
	}, keep)
}

// buildMissing builds those programs of ours and of others that .bin lacks. make builds
// our own afresh before it comes here.
func buildMissing(ctx context.Context, out io.Writer, root, bin string) error {
	for _, one := range []struct{ program, module, path string }{
		{"slicefeed-inventory", "", "./services/inventory"},
		{"slicefeed-writer", "", "./services/writer"},
		{"grpcurl", "tools", "github.com/fullstorydev/grpcurl/cmd/grpcurl"},
	} {
		file := filepath.Join(bin, one.program)
		if _, err := os.Stat(file); err == nil {
			continue
		}
		fmt.Fprintf(out, "Building %s once, into %s.\n", one.program, bin)
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", file, one.path)
		cmd.Dir = filepath.Join(root, one.module)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if one.module != "" { // outside of the workspace
			cmd.Env = append(cmd.Env, "GOWORK=off")
		}
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", one.program, err, text)
		}
	}
	return nil
}

// tell runs the story on a pair of its own.
func tell(ctx context.Context, out io.Writer, options pair.Options, keep bool) (err error) {
	s := newStory(out)
	s.opening()
	s.began = time.Now()
	p, err := pair.Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	s.pair, s.bin, s.programs = p, options.Bin, options.Programs
	quieten(p)

	var others sync.WaitGroup // the client; it ends with its context, before the pair does
	defer others.Wait()
	asking, stop := context.WithCancel(ctx)
	defer stop()
	s.client = p.NewClient(time.Second / requestsPerSecond)
	s.startClient = func() { others.Go(func() { _ = s.client.Run(asking) }) }

	if err := s.play(ctx); err != nil {
		return s.failed(err)
	}
	if err := s.figures(ctx); err != nil {
		return err
	}
	if !keep {
		return nil
	}
	return s.stay(ctx)
}

// quieten sends to a file what client-go has to say about our own watches.
func quieten(p *pair.Pair) {
	log := slog.New(slog.DiscardHandler)
	if file, err := os.Create(filepath.Join(p.Dir(), "lab.log")); err == nil { // closed by our end
		log = slog.New(slog.NewTextHandler(file, nil))
	}
	klog.SetSlogLogger(log)
}

// stay leaves everything up until the user has seen enough.
func (s *story) stay(ctx context.Context) error {
	cache, err := controlplane.CacheDir()
	if err != nil {
		return err
	}
	err = session.Save(cache, session.State{
		Path: []string{s.bin, filepath.Dir(s.programs.Kubectl)},
		Env:  map[string]string{"KUBECONFIG": s.pair.Secured.AdminKubeconfig() + ":" + s.pair.Consuming.AdminKubeconfig()},
	})
	if err != nil {
		return err
	}
	if err := s.tour(); err != nil {
		return errors.Join(err, session.Remove(cache))
	}
	<-ctx.Done()
	fmt.Fprintln(s.out, "Stopping.")
	return session.Remove(cache)
}
