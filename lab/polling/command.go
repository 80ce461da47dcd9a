package polling

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// Command returns the subcommand of lab that runs the controller as a process of its own, so
// that what it takes can be measured.
func Command() *cobra.Command {
	kubectl, ca := "", ""
	cmd := &cobra.Command{
		Use:    "polling ENV-FILE",
		Short:  "Run the stand-in for the controller that people migrate from",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			env, err := ReadEnv(args[0])
			if err != nil {
				return err
			}
			pem, err := os.ReadFile(ca)
			if err != nil {
				return err
			}
			trust := x509.NewCertPool()
			if !trust.AppendCertsFromPEM(pem) {
				return fmt.Errorf("%s has no certificate", ca)
			}
			c := &Controller{
				Env: env, Kubectl: kubectl, Log: cmd.ErrOrStderr(),
				HTTP: &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust}}},
			}
			return c.Run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&kubectl, "kubectl", "kubectl", "the program")
	cmd.Flags().StringVar(&ca, "cloud-ca", "", "file with the CA of the cloud's certificate")
	return cmd
}
