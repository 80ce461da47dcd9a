// Command ionosapi is the emulator of the IONOS Cloud API as a binary of its own.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slicefeed/slicefeed/lab/ionosapi"
)

const help = `Serves the part of the IONOS Cloud API v6 that the inventory reads, over HTTPS, so that a client can be developed without an account:

  GET /cloudapi/v6/datacenters/{dc}
  GET /cloudapi/v6/datacenters/{dc}/servers     ?depth= &limit= &offset= &orderBy=
  GET /cloudapi/v6/datacenters/{dc}/lans/{lan}

The API only reads. What it shows is changed through the side door, plain HTTP
without a token, so keep that on the loopback:

  curl $SIDE/lab/state                                   # everything, as --state takes it
  curl -X PUT  $SIDE/lab/state --data @state.json
  curl         $SIDE/lab/requests                        # what was asked of the API

Faults are switched there as well. A fault has a kind, and may have a path (a
prefix, after /cloudapi/v6), skip (so many pass first), count (so many are hit),
wait, target, address and bytes, according to its kind:

  curl $SIDE/lab/kinds
  curl -X POST $SIDE/lab/faults --data '{"kind":"429-seconds","wait":"30s","count":3}'
  curl -X POST $SIDE/lab/faults --data '{"kind":"401","skip":1,"path":"/datacenters/'$DC'/servers"}'
  curl $SIDE/lab/faults; curl -X DELETE $SIDE/lab/faults[/$NUMBER]

Point a client at it, here the Slicefeed inventory:

  IONOS_API_URL=https://127.0.0.1:8444 IONOS_CA_FILE=ca.pem IONOS_TOKEN=anything`

type flags struct {
	listen, sideDoor, tokenFile, cert, key, caOut, state string
}

func main() { os.Exit(start()) }

func start() int {
	var f flags
	cmd := &cobra.Command{
		Use:           "ionosapi",
		Short:         "An emulator of the IONOS Cloud API v6 with faults that can be switched on",
		Long:          help,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8444", "address of the API (HTTPS); port 0 takes a free one, which is printed")
	cmd.Flags().StringVar(&f.sideDoor, "side-door", "127.0.0.1:8445", "address of the side door (HTTP); empty: none")
	cmd.Flags().
		StringVar(&f.tokenFile, "token-file", "", "file with the one bearer token that is accepted, read at each request; without it any will do")
	cmd.Flags().
		StringVar(&f.cert, "tls-cert", "", "certificate file (PEM); without it a self-signed one for localhost and the listen address is made")
	cmd.Flags().StringVar(&f.key, "tls-key", "", "key file (PEM) of --tls-cert")
	cmd.Flags().StringVar(&f.caOut, "ca-out", "", "write the certificate that clients have to trust to this file, when it is self-signed")
	cmd.Flags().StringVar(&f.state, "state", "", "JSON file with the cloud to begin with, as GET /lab/state gives it")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "ionosapi:", err)
		return 2
	}
	return 0
}

func run(ctx context.Context, f flags) error {
	o := ionosapi.Options{Cloud: ionosapi.NewCloud(), Listen: f.listen, SideDoor: f.sideDoor}
	if f.tokenFile != "" {
		o.Token = func() (string, error) {
			b, err := os.ReadFile(f.tokenFile)
			if err == nil && strings.TrimSpace(string(b)) == "" {
				err = fmt.Errorf("%s is empty", f.tokenFile)
			}
			return string(b), err
		}
		if _, err := o.Token(); err != nil {
			return err
		}
	}
	if (f.cert == "") != (f.key == "") {
		return errors.New("--tls-cert and --tls-key: give both or neither")
	}
	if f.cert != "" && f.caOut != "" {
		return errors.New("--ca-out: only without --tls-cert, when the certificate is self-signed")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return err
		}
		o.Certificate = &pair
	}
	if f.state != "" {
		if err := load(o.Cloud, f.state); err != nil {
			return fmt.Errorf("--state %s: %w", f.state, err)
		}
	}
	e, err := ionosapi.Start(o)
	if err != nil {
		return err
	}
	defer e.Close() //nolint:errcheck // the process ends with it
	if f.caOut != "" {
		if err := os.WriteFile(f.caOut, e.CA(), 0o644); err != nil {
			return err
		}
	}
	fmt.Println("API:      ", e.URL())
	if e.SideDoorURL() != "" {
		fmt.Println("side door:", e.SideDoorURL()+"/lab/state")
	}
	return e.Run(ctx)
}

func load(c *ionosapi.Cloud, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it is only read
	var s ionosapi.State
	if err := ionosapi.Decode(in, &s); err != nil {
		return err
	}
	return c.Load(s)
}
