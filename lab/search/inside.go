package search

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"
	"unsafe"
)

// portrait encodes values of the product with all that they keep to themselves, so that two that behave
// alike forever are encoded alike. What the product must not show is read by reflection: an accessor made
// for the search could forget what the search is to find.
//
// Times are encoded by their order and by how far each is from the one before it, as far as the present.
// Distances from the horizon on are one: the product compares the distance of two times with its own
// spans, and the horizon is longer than the longest of those.
type portrait struct {
	out     []byte
	horizon time.Duration
	times   []moment
}

// moment is a time and where its code belongs.
type moment struct {
	at    int64 // in nanoseconds since the epoch
	place int
}

// paint encodes values at a present time.
func paint(now time.Time, horizon time.Duration, values ...any) []byte {
	p := &portrait{horizon: horizon}
	for _, v := range values {
		p.add(settable(reflect.ValueOf(v)))
	}
	p.times = append(p.times, moment{now.UnixNano(), len(p.out)})
	p.out = append(p.out, 0, 0, 0, 0)
	slices.SortStableFunc(p.times, func(a, b moment) int { return cmp.Compare(b.at, a.at) })
	// The present has number 0 and is usually the latest; what is later would get the same treatment.
	code, last := uint32(0), p.times[0].at
	for _, m := range p.times {
		if gap := last - m.at; gap > 0 {
			code += 1 + uint32(min(gap, int64(p.horizon))/int64(time.Second))
		}
		last = m.at
		binary.BigEndian.PutUint32(p.out[m.place:], code)
	}
	return p.out
}

var (
	timeType    = reflect.TypeFor[time.Time]()
	addressType = reflect.TypeFor[netip.Addr]()
	mutexType   = reflect.TypeFor[sync.Mutex]()
)

func (p *portrait) number(n uint64) { p.out = binary.AppendUvarint(p.out, n) }

// add encodes a value that can be addressed and set: so its fields can be opened, and times and addresses
// among them asked by their own methods.
func (p *portrait) add(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			p.number(1)
		} else {
			p.number(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		p.number(v.Uint())
	case reflect.Float32, reflect.Float64:
		p.out = fmt.Append(p.out, v.Float())
	case reflect.String:
		p.number(uint64(v.Len()))
		p.out = append(p.out, v.String()...)
	case reflect.Struct:
		p.structure(v)
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			p.number(0)
			return
		}
		p.number(1)
		if v.Kind() == reflect.Interface {
			p.add(settable(v.Elem()))
			return
		}
		p.add(v.Elem())
	case reflect.Slice, reflect.Array:
		p.number(uint64(v.Len()))
		if v.Type().Elem().Kind() == reflect.Uint8 {
			p.out = append(p.out, v.Bytes()...)
			return
		}
		for i := range v.Len() {
			p.add(v.Index(i))
		}
	case reflect.Map:
		p.dictionary(v)
	default: // what is no value (a channel, a function) says nothing of the future
	}
}

func (p *portrait) structure(v reflect.Value) {
	switch v.Type() {
	case timeType:
		at := *v.Addr().Interface().(*time.Time)
		if at.IsZero() {
			p.number(0)
			return
		}
		p.number(1)
		p.times = append(p.times, moment{at.UnixNano(), len(p.out)})
		p.out = append(p.out, 0, 0, 0, 0)
	case addressType:
		address := *v.Addr().Interface().(*netip.Addr)
		as16 := address.As16()
		p.number(uint64(address.BitLen()))
		p.out = append(p.out, as16[:]...)
	case mutexType:
	default:
		for _, field := range v.Fields() {
			p.add(open(field))
		}
	}
}

// dictionary encodes a map by its keys in order, which are texts or addresses.
func (p *portrait) dictionary(v reflect.Value) {
	type entry struct {
		key   []byte
		value reflect.Value
	}
	all := make([]entry, 0, v.Len())
	key := reflect.New(v.Type().Key()).Elem()
	for it := v.MapRange(); it.Next(); {
		k := &portrait{}
		key.SetIterKey(it)
		k.add(key)
		value := reflect.New(v.Type().Elem()).Elem()
		value.SetIterValue(it)
		all = append(all, entry{k.out, value})
	}
	slices.SortFunc(all, func(a, b entry) int { return slices.Compare(a.key, b.key) })
	p.number(uint64(len(all)))
	for _, e := range all {
		p.out = append(p.out, e.key...)
		p.add(e.value)
	}
}

// settable copies a value to where it can be addressed.
func settable(v reflect.Value) reflect.Value {
	copied := reflect.New(v.Type()).Elem()
	copied.Set(v)
	return copied
}

// copier copies values of the product with all that they keep to themselves, so that a step leaves the world that it
// was taken in as it was. What the product promises never to alter is shared.
type copier struct {
	shared []reflect.Type // types of pointers
	done   map[unsafe.Pointer]reflect.Value
}

func newCopier(shared ...reflect.Type) *copier {
	return &copier{shared: shared, done: map[unsafe.Pointer]reflect.Value{}}
}

// copy makes to what from is. Both can be addressed.
func (c *copier) copy(to, from reflect.Value) {
	to, from = open(to), open(from)
	if plain(from.Type()) {
		to.Set(from)
		return
	}
	switch from.Kind() {
	case reflect.Struct:
		if from.Type() == mutexType { // the copy is nobody's yet
			return
		}
		for i := range from.NumField() {
			c.copy(to.Field(i), from.Field(i))
		}
	case reflect.Pointer:
		if from.IsNil() || slices.Contains(c.shared, from.Type()) {
			to.Set(from)
			return
		}
		if made, ok := c.done[from.UnsafePointer()]; ok {
			to.Set(made)
			return
		}
		made := reflect.New(from.Type().Elem())
		c.done[from.UnsafePointer()] = made
		c.copy(made.Elem(), from.Elem())
		to.Set(made)
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		made := reflect.MakeSlice(from.Type(), from.Len(), from.Len())
		if item := from.Type().Elem(); plain(item) || slices.Contains(c.shared, item) {
			reflect.Copy(made, from)
			to.Set(made)
			return
		}
		for i := range from.Len() {
			c.copy(made.Index(i), from.Index(i))
		}
		to.Set(made)
	case reflect.Array:
		for i := range from.Len() {
			c.copy(to.Index(i), from.Index(i))
		}
	case reflect.Map:
		if !from.IsNil() {
			to.Set(c.dictionary(from))
		}
	case reflect.Chan: // nobody waits on a copy
		if !from.IsNil() {
			to.Set(reflect.MakeChan(from.Type(), from.Cap()))
		}
	default:
		to.Set(from)
	}
}

func (c *copier) dictionary(from reflect.Value) reflect.Value {
	made := reflect.MakeMapWithSize(from.Type(), from.Len())
	whole := plain(from.Type().Elem()) || slices.Contains(c.shared, from.Type().Elem())
	for it := from.MapRange(); it.Next(); {
		if whole {
			made.SetMapIndex(it.Key(), it.Value())
			continue
		}
		was, is := reflect.New(from.Type().Elem()).Elem(), reflect.New(from.Type().Elem()).Elem()
		was.Set(it.Value())
		c.copy(is, was)
		made.SetMapIndex(it.Key(), is)
	}
	return made
}

var plainTypes sync.Map // what plain found, by type

// plain reports whether a copy of such a value shares nothing that could be altered.
func plain(t reflect.Type) bool {
	if known, ok := plainTypes.Load(t); ok {
		return known.(bool)
	}
	is := false
	switch t.Kind() {
	case reflect.Struct:
		is = t == timeType || t == addressType
		if !is && t != mutexType {
			is = true
			for field := range t.Fields() {
				is = is && plain(field.Type)
			}
		}
	case reflect.Array:
		is = plain(t.Elem())
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Chan, reflect.UnsafePointer:
	default: // numbers and texts; functions and interfaces, of which the models have no copies
		is = true
	}
	plainTypes.Store(t, is)
	return is
}

// open gives access to a field that is not exported.
func open(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
}
