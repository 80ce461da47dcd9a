package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/lab/controlplane"
)

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build etcd, kube-apiserver and kubectl into the cache directory, unless they are there",
		Long: "Build etcd, kube-apiserver, kubectl and proxychoice (kube-proxy's own code, which tells its\n" +
			"choice) from their Go modules into the cache directory, unless they are there, and print\n" +
			"their paths. The directory is slicefeed in the user's\n" +
			"cache directory, or what " + controlplane.CacheEnv + " says.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			programs, err := controlplane.Build(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			for _, path := range []string{programs.Etcd, programs.KubeAPIServer, programs.Kubectl, programs.ProxyChoice} {
				fmt.Fprintln(cmd.OutOrStdout(), path)
			}
			return nil
		},
	}
}
