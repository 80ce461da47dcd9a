// Package sources reads the configuration of the writer's sources: the address of each inventory, its
// identity and its allowlist. It guarantees that it reports all problems of SOURCES_FILE together, with
// their lines, and that it rejects unknown fields: one may be a misspelled restriction. It does not
// reload the file: a changed allowlist in a running writer could take a Service down.
package sources

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slicefeed/slicefeed/services/internal/certificate"
)

// Source is the configuration of one inventory.
type Source struct {
	// Name is a DNS label. It is the label slicefeed.dev/source of slices, a label of metrics, and a part
	// of slice names, in which capitals and underscores would become equal.
	Name    string
	Address string          // host:port
	SAN     certificate.SAN // that its certificate must have
	CAFile  string          // PEM file with the CAs that sign its certificate

	// The allowlist limits what is written and probed for this source, whatever it reports.
	CIDRs      []netip.Prefix
	Namespaces []string // of Services that may use the source, sorted; empty: all watched namespaces
	Ports      []PortRange
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

// Read reads SOURCES_FILE with the defaults of Parse. A relative caFile is relative to the file.
func Read(path string, defaults Source) ([]Source, error) {
	text, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("SOURCES_FILE=%q: %w", path, err)
	}
	all, problems := parseSources(text, filepath.Dir(path), defaults)
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = fmt.Errorf("SOURCES_FILE=%q: %w", path, p)
	}
	return all, errors.Join(errs...)
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err == nil {
		defer file.Close() //nolint:errcheck // only read
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(file, maxFileSize+1)); err == nil {
			return text, nil
		}
	}
	if pathErr := (*os.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err // the caller adds the path
	}
	return nil, fmt.Errorf("read file: %w", err)
}

// Parse parses the text of a SOURCES_FILE in a directory, and returns the sources sorted by name. A source
// without a CA file or ports gets those of defaults; other fields of defaults are ignored. The error joins
// all problems.
func Parse(text []byte, directory string, defaults Source) ([]Source, error) {
	all, problems := parseSources(text, directory, defaults)
	return all, errors.Join(problems...)
}
