package app

import (
	"crypto/x509"
	"errors"

	"k8s.io/client-go/rest"

	"github.com/slicefeed/slicefeed/services/internal/cluster"
	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/probe"
	"github.com/slicefeed/slicefeed/services/writer/sources"
	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// LoadSources returns the configured sources, sorted by name.
func (c *Config) LoadSources() ([]sources.Source, error) {
	defaults := sources.Source{
		Name: targets.DefaultSource, Address: c.Inventory, SAN: c.InventorySAN, CAFile: c.PeerCA,
		CIDRs: c.Subnets, Ports: c.AllowedPorts,
	}
	if c.SourcesFile == "" {
		return []sources.Source{defaults}, nil
	}
	return sources.Read(c.SourcesFile, defaults)
}

// CheckFiles reads the files that the settings name, and reports all problems.
func (c *Config) CheckFiles(version string, checks settings.FileChecks) error {
	listener := link.Files{Cert: c.ListenCert, Key: c.ListenKey, PeerCA: c.ClientCA}
	problems := []error{
		c.TLSFiles().
			Check(x509.ExtKeyUsageClientAuth, link.Files{Cert: "TLS_CERT_FILE", Key: "TLS_KEY_FILE", PeerCA: "TLS_PEER_CA_FILE"}, checks),
		listener.Check(
			x509.ExtKeyUsageServerAuth,
			link.Files{Cert: "LISTEN_CERT_FILE", Key: "LISTEN_KEY_FILE", PeerCA: "CLIENT_CA_FILE"},
			checks,
		),
		settings.CheckFile("ALLOWED_CLIENTS_FILE", c.Clients, func(path string) error {
			_, err := link.ReadClients(path)
			return err
		}),
	}
	if c.SourcesFile != "" {
		configured, err := c.LoadSources()
		problems = append(problems, err)
		for _, s := range configured {
			if s.CAFile != c.PeerCA {
				problems = append(
					problems,
					link.Files{PeerCA: s.CAFile}.Check(0, link.Files{PeerCA: "SOURCES_FILE: caFile of " + s.Name}, checks),
				)
			}
		}
	}
	if checks.Cluster {
		_, _, err := c.LoadCluster(version)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// TargetsConfig returns which Services are targets, and their default settings.
func (c *Config) TargetsConfig(namespace string, configured []sources.Source) (targets.Config, error) {
	mode, err := probe.ParseMode(c.ProbeMode)
	if err != nil {
		return targets.Config{}, err
	}
	config := targets.Config{
		Class: c.Class, Writer: namespace, Namespaces: c.watchedNamespaces(namespace), ServiceImports: c.Imports, Sources: configured,
		Defaults: targets.Settings{
			Probe:       probe.Spec{Mode: mode, Path: c.ProbePath, Interval: c.ProbeInterval, Timeout: c.ProbeTimeout},
			ListUnready: true,
		},
	}
	config.NamedTarget = targets.Target{
		Key: targets.Key{Namespace: c.Namespace, Name: c.Service}, ManagedBy: c.ManagedBy, FirstName: c.SliceName, FixedPort: c.Port,
	}
	return config, nil
}

// LoadCluster returns how to reach the consuming cluster, and the writer's own namespace.
func (c *Config) LoadCluster(version string) (*rest.Config, string, error) {
	return cluster.Load("slicefeed-writer/"+version, "TARGET_KUBECONFIG", c.Kubeconfig, "")
}
