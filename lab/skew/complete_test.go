package skew

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/semver"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	writerv1 "github.com/slicefeed/slicefeed/gen/slicefeed/writer/v1"
)

var contracts = []protoreflect.FileDescriptor{
	inventoryv1.File_slicefeed_inventory_v1_inventory_proto, writerv1.File_slicefeed_writer_v1_writer_proto,
}

// rows are what the tests of this package alter.
func rows() (all []Alter) {
	for _, p := range peers {
		all = append(all, p.requests, p.answers)
	}
	for _, q := range inventoryQuestions {
		all = append(all, q.requests, q.answers)
	}
	for _, w := range writers {
		all = append(all, w.requests, w.answers)
	}
	for _, q := range writerQuestions {
		all = append(all, q.requests, q.answers)
	}
	return all
}

func TestEachEnumOfTheContractsIsToldWithAValueThatNobodyKnows(t *testing.T) {
	for _, contract := range contracts {
		if contract.Enums().Len() == 0 {
			t.Errorf("%s has no enum", contract.Path())
		}
		for i := range contract.Enums().Len() {
			enum := contract.Enums().Get(i)
			if !slices.ContainsFunc(rows(), func(a Alter) bool {
				n, ok := a.Enums[enum.FullName()]
				return ok && enum.Values().ByNumber(n) == nil
			}) {
				t.Errorf("no row tells a value of %s that nobody knows", enum.FullName())
			}
		}
	}
}

// A peer of the first release has what was in the contract then. Whatever has come since, it does not fill in.
func TestEachFieldThatIsNewerThanTheFirstReleaseIsLeftOutInARow(t *testing.T) {
	first := firstRelease(t)
	var newer []protoreflect.FullName
	for _, contract := range contracts {
		for name := range fields(contract.Messages()) {
			if !first[name] {
				newer = append(newer, name)
			}
		}
	}
	for _, field := range newer {
		if !slices.ContainsFunc(rows(), func(a Alter) bool { return slices.Contains(a.Without, field) }) {
			t.Errorf("a peer of the first release does not know %s, and no row leaves it out", field)
		}
	}
}

// firstRelease is every field of the oldest contract in proto/released.
func firstRelease(t *testing.T) map[protoreflect.FullName]bool {
	t.Helper()
	released, err := filepath.Glob("../../proto/released/*.binpb")
	if err != nil || len(released) == 0 {
		t.Fatalf("released contracts: %q, %v", released, err)
	}
	oldest := slices.MinFunc(released, func(a, b string) int {
		version := func(path string) string { return strings.TrimSuffix(filepath.Base(path), ".binpb") }
		return semver.Compare(version(a), version(b))
	})
	raw, err := os.ReadFile(oldest)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		t.Fatalf("%s: %v", oldest, err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatalf("%s: %v", oldest, err)
	}
	all := map[protoreflect.FullName]bool{}
	for _, contract := range contracts {
		was, err := files.FindFileByPath(contract.Path())
		if err != nil {
			t.Fatalf("%s: %v", oldest, err)
		}
		for name := range fields(was.Messages()) {
			all[name] = true
		}
	}
	return all
}

// fields are those of the messages and of the messages within them.
func fields(messages protoreflect.MessageDescriptors) map[protoreflect.FullName]bool {
	all := map[protoreflect.FullName]bool{}
	for i := range messages.Len() {
		m := messages.Get(i)
		for j := range m.Fields().Len() {
			all[m.Fields().Get(j).FullName()] = true
		}
		for name := range fields(m.Messages()) {
			all[name] = true
		}
	}
	return all
}
