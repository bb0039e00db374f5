# Puts the values of the environment where a file of deploy/ has @NAME@: awk -f fill.awk FILE. Not
# by arguments, because every user sees command lines.
{
	line = ""
	while (match($0, /@[A-Z0-9_]+@/)) {
		name = substr($0, RSTART + 1, RLENGTH - 2)
		if (!(name in ENVIRON)) {
			print FILENAME ": " name " is not set" >"/dev/stderr"
			exit 1
		}
		line = line substr($0, 1, RSTART - 1) ENVIRON[name]
		$0 = substr($0, RSTART + RLENGTH)
	}
	print line $0
}
