// Command hostname points a Service without a selector at the addresses of a DNS name, such as a database
// outside of the cluster. Unlike a Service of type ExternalName, this one keeps its cluster IP and its ports.
//
// It uses the writer's planner and applier as libraries (services/endpointslices/planner/README.md): the planner computes the writes, and the
// applier sends them, handles conflicts, and repairs what other clients do to them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slicefeed/slicefeed/services/endpointslices/applier"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hostname:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	host := flag.String("host", "", "DNS name of the backends")
	service := flag.String("service", "", "NAMESPACE/SERVICE")
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig (default: the ServiceAccount of the Pod)")
	interval := flag.Duration("interval", 30*time.Second, "time between two lookups")
	flag.Parse()

	namespace, name, ok := strings.Cut(*service, "/")
	if !ok || *host == "" || *interval <= 0 {
		return errors.New("want -service NAMESPACE/SERVICE, -host and a positive -interval")
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("-kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("-kubeconfig: %w", err)
	}
	f := newFollower(client, applier.Kubernetes(client, fieldManager))
	f.lookup, f.host, f.namespace, f.service = net.DefaultResolver.LookupNetIP, *host, namespace, name
	ticker := time.NewTicker(*interval)
	defer ticker.Stop()
	for {
		// After an error the endpoints stay as they are until the next lookup.
		if plan, err := f.sync(ctx); err != nil {
			slog.Error("sync failed", "service", *service, "host", *host, "error", err)
		} else if !plan.Empty() {
			slog.Info(
				"slices written",
				"service",
				*service,
				"created",
				len(plan.Create),
				"updated",
				len(plan.Update),
				"deleted",
				len(plan.Delete),
			)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
