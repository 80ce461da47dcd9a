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

// A peer of the first release does not set fields that are newer. Until there is a release, no
// field is newer; the rows leave out the fields that the server or the client may lack anyway.
func TestEachFieldNewerThanTheFirstReleaseIsLeftOutInARow(t *testing.T) {
	first := firstRelease(t)
	if first == nil {
		t.Skip("nothing has been released: proto/released has no descriptor set")
	}
	for _, contract := range contracts {
		for field := range fields(contract.Messages()) {
			if first[field] {
				continue
			}
			if !slices.ContainsFunc(rows(), func(a Alter) bool { return slices.Contains(a.Without, field) }) {
				t.Errorf("a peer of the first release does not know %s, and no row leaves it out", field)
			}
		}
	}
}

// firstRelease returns the fields of the oldest contract in proto/released; nil: there is none.
func firstRelease(t *testing.T) map[protoreflect.FullName]bool {
	t.Helper()
	released, err := filepath.Glob("../../proto/released/*.binpb")
	if err != nil {
		t.Fatal(err)
	}
	if len(released) == 0 {
		return nil
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
		file, err := files.FindFileByPath(contract.Path())
		if err != nil {
			t.Fatalf("%s: %v", oldest, err)
		}
		for name := range fields(file.Messages()) {
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
