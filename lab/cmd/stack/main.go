// Command stack is the program of the docker-compose stack, in its containers and for `make up` on the machine.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/stack"
)

func main() {
	root := &cobra.Command{
		Use: "stack", Short: "What the docker-compose stack needs beside the two components",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(setup(), after(), serve(), healthy(), upstream())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stack:", err)
		os.Exit(1)
	}
}

func setup() *cobra.Command {
	job := stack.Job{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	cmd := &cobra.Command{
		Use: "setup secured|consuming", Short: "Make the keys, accounts and objects of one side",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "secured":
				return job.Secured(cmd.Context())
			case "consuming":
				return job.Consuming(cmd.Context())
			default:
				return fmt.Errorf("side %q: want secured or consuming", args[0])
			}
		},
	}
	cmd.Flags().StringVar(&job.Root, "root", "/", "directory of the volumes")
	cmd.Flags().StringVar(&job.Manifests, "manifests", "/manifests", "directory of RBAC and policy")
	cmd.Flags().StringVar(&job.PublishedPort, "published-port", apiPort, "where 127.0.0.1 leads to the API server, for people's kubeconfig")
	return cmd
}

const apiPort = "6443"

// after exists because containers start before the job has made their keys. Not all versions of compose can wait for a
// running job.
func after() *cobra.Command {
	return &cobra.Command{
		Use: "after FILE PROGRAM [ARGUMENT…]", Short: "Wait until a file exists, then become a program",
		Args: cobra.MinimumNArgs(2), DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			// inotify would take more code
			err := wait.PollUntilContextCancel(cmd.Context(), 50*time.Millisecond, true, func(context.Context) (bool, error) {
				_, err := os.Stat(args[0])
				if errors.Is(err, os.ErrNotExist) {
					return false, nil
				}
				return true, err
			})
			if err != nil {
				return err
			}
			return fmt.Errorf("run %s: %w", args[1], syscall.Exec(args[1], args[1:], os.Environ()))
		},
	}
}

func serve() *cobra.Command {
	var name, listen string
	cmd := &cobra.Command{
		Use: "backend", Short: "Answer as a worker's backend does, until SIGTERM", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			address, err := netip.ParseAddrPort(listen)
			if err != nil {
				return fmt.Errorf("--listen: %w", err)
			}
			b, err := backend.Start(name, address)
			if err != nil {
				return err
			}
			<-cmd.Context().Done()
			return b.Close()
		},
	}
	cmd.Flags().StringVar(&name, "name", "backend", "its name in its responses")
	cmd.Flags().StringVar(&listen, "listen", fmt.Sprintf("0.0.0.0:%d", stack.NodePort), "address and port")
	return cmd
}

func healthy() *cobra.Command {
	return &cobra.Command{
		Use: "healthy URL", Short: "Say by the exit code whether a URL answers 200", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{
				// It queries its own container, which needs no identity.
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			}}
			return stack.Answers(cmd.Context(), client, args[0])
		},
	}
}

func upstream() *cobra.Command {
	return &cobra.Command{
		Use: "upstream PROGRAM…", Short: "Build etcd, kube-apiserver or kubectl for GOOS and GOARCH, unless present, and print their paths",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			paths, err := controlplane.BuildPrograms(cmd.Context(), os.Stderr, args...)
			if err == nil {
				fmt.Println(strings.Join(paths, "\n"))
			}
			return err
		},
	}
}
