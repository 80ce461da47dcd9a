// Package sources reads the configuration of the writer's sources: the address of each inventory, its
// identity and its allowlist. It guarantees that it reports all problems of SOURCES_FILE together, with
// their lines, and that it rejects unknown fields: one may be a misspelled restriction. It does not
// reload the file: a changed allowlist in a running writer could take a Service down.
package sources

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slicefeed/slicefeed/services/internal/link"
	"github.com/slicefeed/slicefeed/services/internal/settings"
)

// Source is the configuration of one inventory.
type Source struct {
	// Name is a DNS label. It is the label slicefeed.dev/source of slices, a label of metrics, and a part
	// of slice names, in which capitals and underscores would become equal.
	Name    string   `flag:"name"    required:"true" placeholder:"DNS label"`
	Address string   `flag:"address" required:"true" placeholder:"host:port"`
	SAN     link.SAN `flag:"san"     required:"true" placeholder:"URI or DNS name"` // that its certificate must have
	CAFile  string   `flag:"caFile"                  placeholder:"file"`            // PEM file with the CAs that sign its certificate

	// The allowlist limits what is written and probed for this source, whatever it reports.
	CIDRs      []settings.Subnet `flag:"cidrs"      required:"true" placeholder:"CIDR"`
	Namespaces []string          `flag:"namespaces"                 placeholder:"DNS label"` // of Services that may use the source, sorted; empty: all watched namespaces
	Ports      []PortRange       `flag:"ports"                      placeholder:"port or range"`
}

// AllowsPort reports whether a port may be written and probed for this source.
func (s Source) AllowsPort(port uint16) bool {
	return slices.ContainsFunc(s.Ports, func(r PortRange) bool { return r.Contains(port) })
}

// PortRange is a port or a range of ports, both ends included.
type PortRange struct{ First, Last uint16 }

// Contains reports whether a port is in the range.
func (r PortRange) Contains(port uint16) bool { return r.First <= port && port <= r.Last }

func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// UnmarshalText parses "8080" or "30000-32767".
func (r *PortRange) UnmarshalText(text []byte) error {
	first, last, isRange := strings.Cut(string(text), "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a == 0 || a > b {
		return errors.New("a port such as 8080, or a range such as 30000-32767")
	}
	*r = PortRange{uint16(a), uint16(b)}
	return nil
}

// maxFileSize is the limit of SOURCES_FILE in bytes: about a hundred sources, each with a long list of CIDRs.
const maxFileSize = 256 << 10

// NewClient returns the client of the source's inventory. The writer's own files are those of all links.
func (s Source) NewClient(own link.Files, log *slog.Logger, registry prometheus.Registerer) (*link.Client, error) {
	own.PeerCA = s.CAFile
	return link.NewClient(link.Config{Component: "writer", Name: s.Name, Files: own, Logger: log, Registerer: registry}, s.Address, s.SAN)
}

// Read reads SOURCES_FILE with the defaults of Parse. A relative caFile is relative to the file.
func Read(path string, defaults Source) (all []Source, err error) {
	return all, settings.CheckFile("SOURCES_FILE", path, func(path string) error {
		file, err := os.Open(path)
		if err == nil {
			defer file.Close() //nolint:errcheck // only read
			var text []byte
			if text, err = io.ReadAll(io.LimitReader(file, maxFileSize+1)); err == nil {
				all, err = Parse(text, filepath.Dir(path), defaults)
			}
		}
		if failed, ok := errors.AsType[*os.PathError](err); ok {
			return failed.Err // without the path
		}
		return err
	})
}

// Parse parses the text of a SOURCES_FILE in a directory, and returns the sources sorted by name. A source
// without a CA file or ports gets those of defaults; other fields of defaults are ignored. The error joins
// all problems.
func Parse(text []byte, directory string, defaults Source) ([]Source, error) {
	if len(text) > maxFileSize {
		return nil, fmt.Errorf("want at most %d KiB", maxFileSize>>10)
	}
	all, err := settings.LoadList[Source](text, "sources")
	problems := []error{err}
	for i := range all {
		s := &all[i]
		switch {
		case s.CAFile == "" && defaults.CAFile == "":
			problems = append(problems, fmt.Errorf("source %d (%q): caFile is not set: want a PEM file with the CAs that sign this "+
				"inventory's certificate, or TLS_PEER_CA_FILE as the default", i+1, s.Name))
		case s.CAFile == "":
			s.CAFile = defaults.CAFile
		case !filepath.IsAbs(s.CAFile):
			s.CAFile = filepath.Join(directory, s.CAFile)
		}
		if s.Ports == nil {
			s.Ports = defaults.Ports
		}
		slices.Sort(s.Namespaces)
		s.Namespaces = slices.Compact(s.Namespaces)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b Source) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}
