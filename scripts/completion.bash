# shellcheck shell=bash
# bash completion of couponctl, made from its tables by `make completion`: commands, their options,
# words of options, names of files. Settings, which any command takes, are offered before the
# command, and after it when nothing else begins as the word does.

# COMMANDS
# OPTIONS
# VALUES

# _couponctl_words WORDS: those that begin as the present word does.
_couponctl_words() {
	mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

# Whether the option takes a value, of this command or as a setting.
_couponctl_takes_value() {
	[[ " ${_couponctl_options[$command]-} ${_couponctl_options[couponctl]} " == *" $1= "* ]]
}

# The value of the option $1 of the command.
_couponctl_value() {
	local values=${_couponctl_values[$command $1]-} done=
	case $values in
	@file) ;;
	@list\ *)
		[[ $cur != *,* ]] || done=${cur%,*},
		mapfile -t COMPREPLY < <(compgen -P "$done" -W "${values#@list }" -- "${cur##*,}")
		compopt -o nospace
		return
		;;
	?*)
		_couponctl_words "$values"
		return
		;;
	esac
	[[ $values != @file && $1 != *-ca && $1 != *-keys && $1 != *-dir ]] || {
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		compopt -o filenames
	}
}

_couponctl() {
	local cur=${COMP_WORDS[COMP_CWORD]} command=couponctl option='' word i
	COMPREPLY=()

	# What is before the word: a command, and an option that waits for its value. readline makes
	# three words of --option=value.
	for ((i = 1; i < COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		if [[ $word == = ]]; then
			continue
		elif [[ -n $option ]]; then
			option=
		elif [[ $word == -- ]]; then
			mapfile -t COMPREPLY < <(compgen -c -- "$cur")
			return
		elif [[ $word == --help && $command == couponctl ]]; then
			command+=" $word"
		elif [[ $word == -* ]]; then
			! _couponctl_takes_value "$word" || option=$word
		elif [[ " ${_couponctl_commands[$command]-} " == *" $word "* ]]; then
			command+=" $word"
		fi
	done
	[[ $cur != = ]] || cur=

	if [[ -n $option ]]; then
		_couponctl_value "$option"
	elif [[ $cur == -* ]]; then
		_couponctl_words "${_couponctl_options[$command]-}"
		[[ ${#COMPREPLY[@]} -gt 0 ]] || _couponctl_words "${_couponctl_options[couponctl]}"
		[[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace
	elif [[ -n ${_couponctl_commands[$command]-} ]]; then
		_couponctl_words "${_couponctl_commands[$command]}"
	elif [[ ${_couponctl_values[$command]-} == @file ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		compopt -o filenames
	fi
}

complete -F _couponctl couponctl
