package constrain

// classes is a set of classes of bytes.
type classes uint8

// bytesOf lists the bytes of each class. Patterns have whole classes mostly, in loops above all.
var bytesOf = func() (list [8][]byte) {
	for i := range 256 {
		k, b := 7, byte(i)
		switch {
		case 'a' <= b && b <= 'z':
			k = 0
		case 'A' <= b && b <= 'Z':
			k = 1
		case '0' <= b && b <= '9':
			k = 2
		case b == ' ':
			k = 3
		case b == '"' || b == '\\':
			k = 4
		case b < ' ' || b == lastASCII:
			k = 5
		case b < beyond:
			k = 6
		}
		list[k] = append(list[k], b)
	}
	return list
}()

var classesOf = func() (list [256]classes) {
	for k, bytes := range bytesOf {
		for _, b := range bytes {
			list[b] = 1 << k
		}
	}
	return list
}()
