# shellcheck shell=bash
# The folder of a test that keeps its files for the next run. Sourced; needs die().

# run_folder_main FOLDER SETTING [run|clean]: locks the folder, which SETTING names, until the
# process ends, and calls the function of that name.
run_folder_main() {
	local folder=$1 setting=$2 command=${3:-run}
	case $command in
	run | clean) ;;
	*)
		echo "usage: $0 [run|clean]" >&2
		exit 2
		;;
	esac
	mkdir -p "$folder"
	[[ -e $folder/lock || -z $(ls -A "$folder") ]] ||
		die "$folder holds other files; choose another $setting="
	exec 9>"$folder/lock"
	flock -n 9 || die "another test is running in $folder"
	"$command"
}
