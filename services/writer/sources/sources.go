// Package sources reads what the settings say of the writer's sources: where each is, who it
// has to be and what it may point to. It promises to report every problem of SOURCES_FILE at
// once, with its line, and refuses whatever it does not understand: an unknown field may be a
// restriction with a typing mistake in it. The file is read at start only: a fence that moved
// under a running writer would be one more thing that could take a Service down.
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

	"github.com/slicefeed/slicefeed/services/internal/link"
)

// Source is one inventory as the writer knows it.
type Source struct {
	// Name is a DNS label: it is the label slicefeed.dev/source of slices, a part of their
	// names, which fold capitals and underscores, and a label of metrics.
	Name    string
	Address string   // host:port
	SAN     link.SAN // that its certificate must bear
	CAFile  string   // PEM of the CAs that sign its certificate

	// The fence: what this source, whatever it tells, can have written and probed.
	CIDRs      []netip.Prefix
	Namespaces []string // of the Services that it may be a source of, sorted; empty: all that are watched
	Ports      []PortRange
}

// AllowsPort reports whether a port may be written and probed for this source.
func (s Source) AllowsPort(port uint16) bool {
	return slices.ContainsFunc(s.Ports, func(r PortRange) bool { return r.Contains(port) })
}

// AllowsNamespace reports whether Services of a namespace may have this source.
func (s Source) AllowsNamespace(namespace string) bool {
	return len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, namespace)
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

// UnmarshalText reads "8080" or "30000-32767".
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

// maxFileSize bounds SOURCES_FILE, in bytes: some hundred sources, each with a long list of CIDRs.
const maxFileSize = 256 << 10

// Read reads SOURCES_FILE, with the defaults of Parse. A relative caFile is looked for beside it.
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
		defer file.Close() //nolint:errcheck // it was only read
		var text []byte
		if text, err = io.ReadAll(io.LimitReader(file, maxFileSize+1)); err == nil {
			return text, nil
		}
	}
	if pathErr := (*os.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err // the path is told already
	}
	return nil, fmt.Errorf("want a file with the sources: %w", err)
}

// Parse reads the text of a SOURCES_FILE in a directory, sorted by name. A source that names
// no CA file or no ports has those of defaults; what else defaults has is not looked at. The
// error joins all problems.
func Parse(text []byte, directory string, defaults Source) ([]Source, error) {
	all, problems := parseSources(text, directory, defaults)
	return all, errors.Join(problems...)
}
