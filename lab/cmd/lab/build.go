package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build [PROGRAM...]",
		Short: "Build upstream programs into the cache directory, unless they are there",
		Long: "Build programs from their Go modules into the cache directory, unless they are there, and print\n" +
			"their paths: etcd, kube-apiserver and kubectl, or the named ones; further ones are\n" +
			"kube-controller-manager, kube-scheduler, kubelet, kube-proxy, proxychoice (kube-proxy's code,\n" +
			"which prints its choice), coredns, cert-manager and trust-manager.\n" +
			"The directory is slicefeed in the user's cache directory, or the value of " + controlplane.CacheEnv + ".",
		RunE: func(cmd *cobra.Command, names []string) error {
			paths, err := controlplane.BuildPrograms(cmd.Context(), cmd.ErrOrStderr(), names...)
			if len(names) == 0 {
				var programs controlplane.Programs
				programs, err = controlplane.Build(cmd.Context(), cmd.ErrOrStderr())
				paths = []string{programs.Etcd, programs.KubeAPIServer, programs.Kubectl}
			}
			if err != nil {
				return err
			}
			for _, path := range paths {
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return nil
		},
	}
}
